// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/plan_model.h"

#include <gtest/gtest.h>

#include "poseidon/plan/planner.h"

namespace poseidon::plan {
namespace {

// Forward 10 ms, backward 20 ms each. The first layer has few bytes, the last one many: 8 MB each way at a worker of two.
std::vector<LayerSpec> FewThenMany() {
  return {{.name = "few", .elements = 100}, {.name = "many", .elements = 2'000'000, .forward_position = 1}};
}

Plan PlanFor(const std::vector<LayerSpec>& layers, double bandwidth, std::uint16_t servers = 0) {
  ClusterSpec cluster;
  cluster.workers = 2;
  cluster.servers = servers;
  cluster.bandwidth = bandwidth;
  LayerMeasurement measured;
  measured.forward_seconds = 0.010;
  measured.backward_seconds = 0.020;
  const std::vector<LayerMeasurement> all(layers.size(), measured);
  return MakePlan(layers, cluster, all, {}).value();
}

// The many bytes have 30 ms: the backward pass of the layer before them and its forward pass.
TEST(SufficientRate, IsWhatTheLayerInNeedHasTimeFor) {
  const std::vector<LayerSpec> layers = FewThenMany();
  const double bytes = static_cast<double>(PlanFor(layers, 1e9).layers[1].bytes_sent);
  for (const double bandwidth : {1e9, 2e9, 8e9}) {
    SCOPED_TRACE(bandwidth);
    const double sufficient = SufficientRate(PlanFor(layers, bandwidth), layers) * bandwidth;
    EXPECT_NEAR(sufficient, bytes / 0.030, 0.05 * bytes / 0.030 + bandwidth / 256);
  }
}

TEST(SufficientRate, IsAllOfItWhereTheNetworkIsTheBound) {
  const std::vector<LayerSpec> layers = FewThenMany();
  EXPECT_GT(SufficientRate(PlanFor(layers, 1e8), layers), 0.99);
  EXPECT_EQ(SufficientRate(ProvisionalPlan(layers, PlanFor(layers, 1e8).cluster, {}).value(), layers), 1);
}

TEST(SpreadRate, LeavesTimeToSpare) {
  const std::vector<LayerSpec> layers = FewThenMany();
  const Plan plan = PlanFor(layers, 2e9);
  EXPECT_DOUBLE_EQ(SpreadRate(plan, layers), 1.75 * SufficientRate(plan, layers) * 2e9);
  EXPECT_DOUBLE_EQ(SpreadRate(PlanFor(layers, 1e12), layers), 1e11) << "a tenth at least";
  EXPECT_EQ(SpreadRate(PlanFor(layers, 4e8), layers), 0) << "it needs more than half";
  EXPECT_EQ(SpreadRate(PlanFor(layers, 2e9, 1), layers), 0) << "a server sends and receives more than a worker";
}

}  // namespace
}  // namespace poseidon::plan
