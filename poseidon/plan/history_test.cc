// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/history.h"

#include <gtest/gtest.h>

namespace poseidon::plan {
namespace {

Plan PlanFrom(std::uint64_t step, std::uint32_t epoch) {
  Plan plan;
  plan.switch_step = Step(step);
  plan.epoch = PlanEpoch(epoch);
  plan.layers.resize(2);
  plan.layers[1].scheme = Scheme::kFactorBroadcast;
  plan.layers[1].send_position = 10 + epoch;
  return plan;
}

TEST(History, BeforeAnyPlanIsByKeysInOrderOfDeclaration) {
  const History history(2);
  const History::Entry& entry = history.At(Step(7));
  EXPECT_EQ(entry.epoch, PlanEpoch(0));
  EXPECT_EQ(entry.by_layer[1].scheme, Scheme::kKeyValue);
  EXPECT_EQ(entry.by_layer[0].send_position, 0u);
  EXPECT_EQ(entry.by_layer[1].send_position, 1u);
}

TEST(History, EveryStepKeepsToItsPlan) {
  History history(2);
  history.Use(PlanFrom(3, 1));
  history.Use(PlanFrom(5, 2));
  history.Use(PlanFrom(9, 3));
  const std::uint32_t expected[] = {1, 1, 1, 11, 11, 12, 12, 12, 12, 13};
  for (std::uint64_t step = 0; step < 10; ++step) {
    EXPECT_EQ(history.At(Step(step)).by_layer[1].send_position, expected[step]) << "step " << step;
  }
  EXPECT_EQ(history.At(Step(2)).by_layer[1].scheme, Scheme::kKeyValue);
  EXPECT_EQ(history.At(Step(3)).by_layer[1].scheme, Scheme::kFactorBroadcast);
}

TEST(History, ALaterPlanReplacesWhatWasSaidOfItsSteps) {
  History history(2);
  history.Use(PlanFrom(5, 1));
  history.Use(PlanFrom(8, 2));
  history.Use(PlanFrom(5, 3));
  EXPECT_EQ(history.At(Step(4)).epoch, PlanEpoch(0));
  EXPECT_EQ(history.At(Step(5)).epoch, PlanEpoch(3));
  EXPECT_EQ(history.At(Step(8)).epoch, PlanEpoch(3));
}

TEST(History, APlanFromTheFirstStepOnLeavesNothingBefore) {
  History history(2);
  history.Use(PlanFrom(0, 1));
  EXPECT_EQ(history.At(Step(0)).epoch, PlanEpoch(1));
}

}  // namespace
}  // namespace poseidon::plan
