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

std::vector<Row> EndOf(StepClock* clock) { return RowsOf(clock->End().passes); }

// Layers take 10, 20 and 30 forward, in the order 0, 1, 2, and twice that on the way back.
TEST(StepClock, FindsPassesOfWhichBackwardTakesTwiceForward) {
  StepClock clock;
  clock.Begin(7, 1000);
  clock.GradientIsThere(2, 1000 + 60 + 60);
  clock.GradientIsThere(1, 1000 + 60 + 100);
  clock.GradientIsThere(0, 1000 + 60 + 120);
  const StepClock::Ended ended = clock.End();
  EXPECT_THAT(RowsOf(ended.passes),
              ElementsAre(Row(0, kForward, 1000, 1010), Row(1, kForward, 1010, 1030), Row(2, kForward, 1030, 1060),
                          Row(2, kBackward, 1060, 1120), Row(1, kBackward, 1120, 1160), Row(0, kBackward, 1160, 1180)));
  EXPECT_EQ(ended.step, 7u);
  EXPECT_EQ(ended.waited, 0);
}

TEST(StepClock, GivesOneLayerAThirdForward) {
  StepClock clock;
  clock.Begin(0, 500);
  clock.GradientIsThere(0, 530);
  EXPECT_THAT(EndOf(&clock), ElementsAre(Row(0, kForward, 500, 510), Row(0, kBackward, 510, 530)));
}

// TensorFlow starts ops on several threads, which may report their gradients in another order than they were made.
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
  const StepClock::Ended ended = clock.End();
  EXPECT_THAT(ended.passes, IsEmpty());
  EXPECT_EQ(ended.step, 3u);
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

// Forward passes take 10, 20 and 30 from `begin` on, backward passes twice that.
void ComputeThree(StepClock* clock, std::int64_t begin) {
  clock->GradientIsThere(2, begin + 60 + 60);
  clock->GradientIsThere(1, begin + 60 + 100);
  clock->GradientIsThere(0, begin + 60 + 120);
}

TEST(StepClock, AStepWaitsForItsOwnMeansOnceItsGradientsAreThere) {
  StepClock clock;
  clock.Begin(0, 1000);
  ComputeThree(&clock, 1000);
  clock.Waited(2, 0, 1121, 1170);  // beside the backward pass
  clock.Waited(1, 0, 1161, 1200);
  clock.Waited(0, 0, 1185, 1250);
  EXPECT_EQ(clock.End().waited, 70);
  EXPECT_EQ(clock.End().waited, 0);
}

TEST(StepClock, NobodyWaitsBeforeAnOpAsks) {
  StepClock clock;
  clock.Begin(0, 1000);
  ComputeThree(&clock, 1000);
  clock.Waited(0, 0, 1240, 1250);
  EXPECT_EQ(clock.End().waited, 10);
}

// The means of the step before land while the forward pass is under way.
TEST(StepClock, AForwardPassWaitsForMeansThatAreNotThereWhenTheLayersBelowAreThrough) {
  StepClock clock;
  for (std::uint64_t step = 0; step < 2; ++step) {  // the first is not counted
    clock.Begin(step, 0);
    ComputeThree(&clock, 0);
    clock.End();
  }
  clock.Begin(2, 1000);
  clock.Waited(0, 1, 1000, 1005);  // 5 until the bottom begins, which is through at 1015
  clock.Waited(1, 1, 1000, 1012);  // hidden; through at 1035
  clock.Waited(2, 1, 1000, 1050);  // 15
  ComputeThree(&clock, 1020);
  EXPECT_EQ(clock.End().waited, 20);
  // A mean that had landed before it was asked for counts as no wait.
  clock.Begin(3, 2000);
  clock.Waited(2, 2, 2000, 2035);
  ComputeThree(&clock, 2005);
  EXPECT_EQ(clock.End().waited, 5);
}

}  // namespace
}  // namespace poseidon::tensorflow
