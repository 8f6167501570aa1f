// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poseidon::profile {
namespace {

using ::testing::HasSubstr;

// Two layers of 1 MB each, 10 ms forward and 20 ms backward, 50 images a step.
Profile TwoLayers() {
  Profile profile;
  profile.name = "two";
  profile.batch = 50;
  for (const char* name : {"a", "b"}) {
    profile.layers.push_back({.spec = {.name = name,
                                       .elements = 250'000,
                                       .forward_position = static_cast<std::uint32_t>(profile.layers.size())},
                              .tensors = {{std::string(name) + ".weight", {250'000}}},
                              .forward_seconds = 0.01,
                              .backward_seconds = 0.02});
  }
  return profile;
}

std::vector<Cost> Costs(Setting setting, std::uint32_t workers, double rate) {
  setting.goodput = 1;
  const Point point = Predict(TwoLayers(), setting, workers, rate).value();
  return CostsOf(point, TwoLayers(), setting, 1000, 2.5);
}

// Two workers at 8 Gbit/s: a worker sends half of each layer and the mean of its half, 1 MB in 1 ms.
TEST(Budget, IsStepsByTheirPrediction) {
  const std::vector<Cost> costs = Costs({}, 2, 8e9);
  ASSERT_EQ(costs.size(), 5u);
  const Cost& plan = costs[0];
  EXPECT_EQ(plan.steps, 25u);
  EXPECT_NEAR(plan.step_seconds, 0.061, 1e-9);  // the first layer's transfer is waited for
  EXPECT_EQ(plan.bytes, 2'000'000u);
  EXPECT_DOUBLE_EQ(plan.days(), 25 * plan.step_seconds / 86'400);
  EXPECT_DOUBLE_EQ(plan.machine_hours(), 2 * 24 * plan.days());
  EXPECT_NEAR(plan.speedup, 2 * 0.060 / 0.061, 1e-9);
  EXPECT_GE(costs[1].step_seconds, plan.step_seconds);
  EXPECT_GE(costs[2].step_seconds, costs[1].step_seconds);
  // Each of two shards has one layer whole: its owner receives 1 MB and sends 1 MB, and as much as the other's worker; no overlap.
  EXPECT_EQ(costs[3].name, "whole_layers");
  EXPECT_NEAR(costs[3].step_seconds, 0.060 + 0.002, 1e-9);
  EXPECT_EQ(costs[4].steps, 50u);
  EXPECT_DOUBLE_EQ(costs[4].step_seconds, 0.060);
  EXPECT_EQ(costs[4].machines, 1u);
  EXPECT_EQ(costs[4].bytes, 0u);
}

TEST(Budget, CountsMachinesAndNotWorkers) {
  Setting setting;
  setting.per_host = 4;
  setting.servers = 1;
  EXPECT_EQ(Costs(setting, 8, 8e9)[0].machines, 3u);
  setting.per_host = 3;
  EXPECT_EQ(Costs(setting, 8, 8e9)[0].machines, 4u);
}

TEST(Budget, IsATable) {
  const std::vector<Cost> costs = Costs({}, 2, 8e9);
  const std::string text = BudgetText(costs, TwoLayers(), 1000, 2.5, 100);
  EXPECT_THAT(text, HasSubstr("budget of 2.5 epochs of 1000 images: 25 steps of 50 images a worker, 50 on one\n"));
  EXPECT_THAT(text, HasSubstr("  this plan                                       1.77e-05       0.000847       50.0 MB     1.97x\n"));
  EXPECT_THAT(text, HasSubstr("  one worker alone                                3.47e-05       0.000833           0 B     1.00x\n"));
  const nlohmann::json json = BudgetJson(costs, 1000, 2.5);
  EXPECT_EQ(json["ways"]["plan"]["steps"], 25);
  EXPECT_EQ(json["ways"].size(), 5u);
}

}  // namespace
}  // namespace poseidon::profile
