// SPDX-License-Identifier: Apache-2.0
#include "frontends/tensorflow/step_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>
#include <vector>

namespace poseidon::tensorflow {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr bool kForward = true;
constexpr bool kBackward = false;

// Layer, whether forward, begin, end.
using Row = std::tuple<std::uint32_t, bool, std::int64_t, std::int64_t>;

std::vector<Row> RowsOf(const std::vector<StepClock::Pass>& passes) {
  std::vector<Row> rows;
  for (const StepClock::Pass& pass : passes) rows.emplace_back(pass.layer, pass.forward, pass.begin, pass.end);
  return rows;
}

std::vector<Row> EndOf(StepClock* clock) {
  std::uint64_t step = 0;
  return RowsOf(clock->End(&step));
}

// Layers take 10, 20 and 30 forward, in the order 0, 1, 2, and twice that on the way back.
TEST(StepClock, FindsPassesOfWhichBackwardTakesTwiceForward) {
  StepClock clock;
  clock.Begin(7, 1000);
  clock.GradientIsThere(2, 1000 + 60 + 60);
  clock.GradientIsThere(1, 1000 + 60 + 100);
  clock.GradientIsThere(0, 1000 + 60 + 120);
  std::uint64_t step = 0;
  EXPECT_THAT(RowsOf(clock.End(&step)),
              ElementsAre(Row(0, kForward, 1000, 1010), Row(1, kForward, 1010, 1030), Row(2, kForward, 1030, 1060),
                          Row(2, kBackward, 1060, 1120), Row(1, kBackward, 1120, 1160), Row(0, kBackward, 1160, 1180)));
  EXPECT_EQ(step, 7u);
}

TEST(StepClock, GivesOneLayerAThirdForward) {
  StepClock clock;
  clock.Begin(0, 500);
  clock.GradientIsThere(0, 530);
  EXPECT_THAT(EndOf(&clock), ElementsAre(Row(0, kForward, 500, 510), Row(0, kBackward, 510, 530)));
}

// TensorFlow starts ops on several threads, which may tell of their gradients in another order than they were made.
TEST(StepClock, OrdersGradientsByTheirTimes) {
  StepClock clock;
  clock.Begin(0, 0);
  clock.GradientIsThere(0, 90);
  clock.GradientIsThere(1, 60);
  EXPECT_THAT(EndOf(&clock), ElementsAre(Row(0, kForward, 0, 15), Row(1, kForward, 15, 30), Row(1, kBackward, 30, 60),
                                         Row(0, kBackward, 60, 90)));
}

// Where what follows the first gradient takes longer than the rule can explain, as in a step that recomputes activations.
TEST(StepClock, NoPassIsNegative) {
  StepClock clock;
  clock.Begin(0, 0);
  clock.GradientIsThere(1, 10);
  clock.GradientIsThere(0, 100);
  EXPECT_THAT(EndOf(&clock), ElementsAre(Row(0, kForward, 0, 10), Row(1, kForward, 10, 10), Row(1, kBackward, 10, 10),
                                         Row(0, kBackward, 10, 100)));
}

TEST(StepClock, DividesNothingByNothing) {
  StepClock clock;
  clock.Begin(0, 10);
  clock.GradientIsThere(1, 10);
  clock.GradientIsThere(0, 10);
  EXPECT_THAT(EndOf(&clock), ElementsAre(Row(0, kForward, 10, 10), Row(1, kForward, 10, 10), Row(1, kBackward, 10, 10),
                                         Row(0, kBackward, 10, 10)));
}

TEST(StepClock, HasNothingToTellOfAStepWithoutGradients) {
  StepClock clock;
  EXPECT_THAT(EndOf(&clock), IsEmpty());
  clock.Begin(3, 100);
  std::uint64_t step = 0;
  EXPECT_THAT(clock.End(&step), IsEmpty());
  EXPECT_EQ(step, 3u);
}

TEST(StepClock, TellsOnce) {
  StepClock clock;
  clock.Begin(3, 100);
  clock.GradientIsThere(0, 130);
  EXPECT_THAT(EndOf(&clock), testing::SizeIs(2));
  EXPECT_THAT(EndOf(&clock), IsEmpty());
}

TEST(StepClock, ForgetsAStepThatDidNotEnd) {
  StepClock clock;
  clock.Begin(3, 100);
  clock.GradientIsThere(1, 120);
  clock.Begin(4, 200);
  clock.GradientIsThere(0, 230);
  EXPECT_THAT(EndOf(&clock), ElementsAre(Row(0, kForward, 200, 210), Row(0, kBackward, 210, 230)));
}

}  // namespace
}  // namespace poseidon::tensorflow
