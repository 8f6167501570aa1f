// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/history.h"

#include <gtest/gtest.h>

namespace poseidon::plan {
namespace {

Plan PlanFrom(std::uint64_t step, std::uint32_t number) {
  Plan plan;
  plan.switch_step = Step(step);
  plan.layers.resize(2);
  plan.layers[1].scheme = Scheme::kFactorBroadcast;
  plan.layers[1].send_position = 10 + number;
  return plan;
}

TEST(History, BeforeAnyPlanIsByKeysInOrderOfDeclaration) {
  const History history(2);
  const History::Entry& entry = history.At(Step(7));
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
  EXPECT_EQ(history.At(Step(4)).by_layer[1].send_position, 1u);
  EXPECT_EQ(history.At(Step(5)).by_layer[1].send_position, 13u);
  EXPECT_EQ(history.At(Step(8)).by_layer[1].send_position, 13u);
}

TEST(History, APlanFromTheFirstStepOnLeavesNothingBefore) {
  History history(2);
  history.Use(PlanFrom(0, 1));
  EXPECT_EQ(history.At(Step(0)).by_layer[1].send_position, 11u);
}

}  // namespace
}  // namespace poseidon::plan
