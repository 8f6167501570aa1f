// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/hosts.h"

#include <gtest/gtest.h>

#include "poseidon/plan/cost_model.h"
#include "poseidon/plan/payload.h"
#include "poseidon/plan/planner.h"

namespace poseidon::plan {
namespace {

using Machines = std::vector<std::string>;
using Hosts = std::vector<std::uint32_t>;

TEST(Hosts, AreNumberedByTheirLowestRanks) {
  EXPECT_EQ(HostOfRank(Machines{"b", "a", "b", "", "a", ""}, Levels::kHost),
            (Hosts{0, 1, 0, 2, 1, 3}));
  EXPECT_EQ(HostCount(Hosts{0, 1, 0, 2}), 3u);
  EXPECT_EQ(RanksOf(Hosts{0, 1, 0, 2}, 0), (std::vector<std::uint16_t>{0, 2}));
  EXPECT_EQ(SumByHost(Hosts{0, 1, 0}, std::vector<std::uint32_t>{1, 2, 4}),
            (std::vector<std::uint32_t>{5, 2}));
}

TEST(Hosts, HaveAsManyLeadersAsTheSmallestHasWorkers) {
  EXPECT_EQ(LeadersPerHost(Hosts{}, 0), 1);
  EXPECT_EQ(LeadersPerHost(Hosts{0, 1, 0}, 0), 1);
  EXPECT_EQ(LeadersPerHost(Hosts{0, 1, 0, 1, 0}, 0), 2);
  EXPECT_EQ(LeadersPerHost(Hosts{0, 1, 0, 1, 0}, 2), 1) << "servers expect a host's contributions from one member";
  EXPECT_EQ(LeadersPerHost(Hosts(40, 0), 0), kMostLeaders);
}

TEST(Hosts, FlatWhereThatIsWantedOrAllThereIs) {
  EXPECT_TRUE(HostOfRank(Machines{"a", "a", "b"}, Levels::kFlat).empty());
  EXPECT_TRUE(HostOfRank(Machines{"", ""}, Levels::kHost).empty());
  EXPECT_TRUE(HostOfRank(Machines{"a", "b"}, Levels::kHost).empty());
  EXPECT_TRUE(HostOfRank(Machines{"a", "a"}, Levels::kAuto).empty());
  EXPECT_EQ(HostOfRank(Machines{"a", "a"}, Levels::kHost), (Hosts{0, 0}));
  EXPECT_EQ(HostOfRank(Machines{"a", "a", "b"}, Levels::kAuto), (Hosts{0, 0, 1}));
}

TEST(Hosts, OnlyWhatHostOfRankAnswersAreHosts) {
  EXPECT_TRUE(AreHosts(Hosts{}, 4));
  EXPECT_TRUE(AreHosts(Hosts{0, 0, 1}, 3));
  EXPECT_FALSE(AreHosts(Hosts{0, 0, 1}, 4));
  EXPECT_FALSE(AreHosts(Hosts{0, 1, 2}, 3)) << "nobody combines";
  EXPECT_FALSE(AreHosts(Hosts{0, 2, 2}, 3)) << "a gap";
  EXPECT_FALSE(AreHosts(Hosts{1, 1, 0}, 3));
}

// 2 x 4: what crosses is what two workers exchange, with the rows of four each.
TEST(Hosts, TheirBytesCrossOnce) {
  const LayerSpec layer{
      .name = "fc", .elements = 1024 * 512, .factors = FactorShape{1024, 512, false}};
  ClusterSpec levels{.workers = 8, .host_of_rank = {0, 0, 0, 0, 1, 1, 1, 1}};
  LayerPlan dense;
  const auto slices = MakeSlices(layer.elements, layer.dtype, levels.shards(), 0);
  ASSERT_EQ(levels.shards(), 2);
  LayerPayload payload = PayloadOf(layer, slices, dense, levels);
  EXPECT_EQ(payload.workers[0], (NodeBytes{layer.bytes(), layer.bytes()}));
  EXPECT_EQ(payload.workers[1], NodeBytes{});
  EXPECT_EQ(payload.workers[4], (NodeBytes{layer.bytes(), layer.bytes()}));

  LayerPlan factors;
  factors.scheme = Scheme::kFactorBroadcast;
  factors.measured.rows = {1, 2, 3, 4, 5, 6, 7, 8};
  payload = PayloadOf(layer, slices, factors, levels);
  EXPECT_EQ(payload.workers[0], (NodeBytes{10 * 1536 * 4, 26 * 1536 * 4}));
  EXPECT_EQ(payload.workers[3], NodeBytes{});
  EXPECT_EQ(payload.workers[4], (NodeBytes{26 * 1536 * 4, 10 * 1536 * 4}));
}

// Three workers on the larger host: the layer goes in, is added three times, and comes out.
TEST(Hosts, CopiesDelayALayer) {
  const LayerSpec layer{.name = "fc", .elements = 1000, .factors = FactorShape{100, 10, false}};
  ClusterSpec levels{.workers = 4, .host_of_rank = {0, 1, 0, 0}, .copy_bytes_per_second = 1e6};
  levels.latency = 0.5;
  const auto slices = MakeSlices(layer.elements, layer.dtype, levels.shards(), 0);
  const LayerMeasurement measured{.rows = {1, 2, 3, 4}};
  EXPECT_DOUBLE_EQ(CostOf(layer, slices, Scheme::kKeyValue, levels, measured).latency,
                   1.0 + 5 * 4000 / 1e6);
  EXPECT_DOUBLE_EQ(CostOf(layer, slices, Scheme::kFactorBroadcast, levels, measured).latency,
                   0.5 + (4000 + 2 * 8 * 110 * 4) / 1e6);
}

// 2 x 2: half of a layer goes in, two halves are added at once, and all of it comes out.
TEST(Hosts, LeadersShareTheCopies) {
  const LayerSpec layer{.name = "fc", .elements = 1000, .factors = FactorShape{100, 10, false}};
  ClusterSpec levels{.workers = 4, .host_of_rank = {0, 1, 0, 1}, .copy_bytes_per_second = 1e6};
  const auto slices = MakeSlices(layer.elements, layer.dtype, levels.shards(), 0);
  EXPECT_DOUBLE_EQ(CostOf(layer, slices, Scheme::kKeyValue, levels, {}).latency, (2000 + 2 * 2000 + 4000) / 1e6);
}

// The device of every worker multiplies the rows of all, which its leader writes and it reads.
TEST(Hosts, RowsAreCopiedWhereDevicesMultiply) {
  LayerSpec layer{.name = "fc", .elements = 1000, .factors = FactorShape{100, 10, false}};
  layer.factors->by_device = true;
  const ClusterSpec levels{.workers = 4, .host_of_rank = {0, 1, 0, 0}, .copy_bytes_per_second = 1e6};
  const LayerMeasurement measured{.rows = {1, 2, 3, 4}};
  EXPECT_DOUBLE_EQ(CostOf(layer, {}, Scheme::kFactorBroadcast, levels, measured).latency,
                   (2 * 10 + 2 * 8) * 110 * 4 / 1e6);
}

// On one host gradients are combined, which crosses no network, and factors go as from flat workers.
TEST(Hosts, OnOneHostFactorsAreFlat) {
  const LayerSpec layer{.name = "fc", .elements = 1000, .factors = FactorShape{100, 10, false}};
  ClusterSpec one{.workers = 3, .host_of_rank = {0, 0, 0}, .copy_bytes_per_second = 1e6, .bandwidth = 1e6, .latency = 0.5};
  ClusterSpec flat = one;
  flat.host_of_rank = {};
  const LayerMeasurement measured{.rows = {1, 2, 3}};
  const auto slices = MakeSlices(layer.elements, layer.dtype, one.shards(), 0);
  const auto flat_slices = MakeSlices(layer.elements, layer.dtype, flat.shards(), 0);
  for (const Scheme scheme : {Scheme::kFactorBroadcast, Scheme::kFactorScatter}) {
    LayerPlan plan;
    plan.scheme = scheme;
    plan.measured = measured;
    EXPECT_EQ(PayloadOf(layer, slices, plan, one), PayloadOf(layer, flat_slices, plan, flat));
    EXPECT_EQ(CostOf(layer, slices, scheme, one, measured).transfer, CostOf(layer, flat_slices, scheme, flat, measured).transfer);
    EXPECT_EQ(CostOf(layer, slices, scheme, one, measured).latency, CostOf(layer, flat_slices, scheme, flat, measured).latency);
  }
  LayerPlan dense;
  EXPECT_EQ(BusiestWorker(PayloadOf(layer, slices, dense, one)), NodeBytes{});
  // Two thirds of the layer go in, three thirds are added at once, and all of it comes out; meanwhile no other layer is copied.
  EXPECT_DOUBLE_EQ(CostOf(layer, slices, Scheme::kKeyValue, one, measured).transfer, (2667 + 4000 + 4000) / 1e6);
  EXPECT_EQ(CostOf(layer, slices, Scheme::kKeyValue, one, measured).latency, 0);
  const std::vector<LayerSpec> two = {layer, {.name = "other", .elements = 1000, .forward_position = 1}};
  const StepModel model(two, AssignSlices(two, one.shards()), one, std::vector<LayerMeasurement>(2));
  EXPECT_DOUBLE_EQ(model.Predict(std::vector<Scheme>(2, Scheme::kKeyValue)).step, 2 * (2667 + 4000 + 4000) / 1e6);
  // Servers are reached over a network, also from one host.
  one.servers = 1;
  EXPECT_FALSE(one.factors_are_flat());
  EXPECT_EQ(one.sharers_of_link(), 1);
}

// By bytes alone nothing beats what sends none.
TEST(Hosts, OnOneHostFewestBytesAreThoseOfGradients) {
  const std::vector<LayerSpec> layers = {{.name = "fc", .elements = 300 * 300, .factors = FactorShape{300, 300, false}}};
  const std::vector<LayerMeasurement> measured = {{.rows = {1, 1, 1, 1}}};
  const auto plan = MakePlan(layers, {.workers = 4, .host_of_rank = {0, 0, 0, 0}}, measured, {.policy = Policy::kBytes});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->layers[0].scheme, Scheme::kKeyValue);
}

// M = N = 300, K rows each, 2 hosts of 4: 2 (4K) (M+N) elements of factors, 2 MN of slices.
TEST(Hosts, ThePublishedRuleCountsThem) {
  const std::vector<LayerSpec> layers = {
      {.name = "fc", .elements = 300 * 300, .factors = FactorShape{300, 300, false}}};
  const ClusterSpec levels{.workers = 8, .host_of_rank = {0, 0, 0, 0, 1, 1, 1, 1}};
  std::vector<LayerMeasurement> measured(1);
  for (const auto& [rows, scheme] : {std::pair(37u, Scheme::kFactorBroadcast),   // 177,600 <= 180,000
                                     std::pair(38u, Scheme::kKeyValue)}) {       // 182,400
    measured[0].rows.assign(8, rows);
    const auto plan = MakePlan(layers, levels, measured, {.policy = Policy::kBytes});
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->layers[0].scheme, scheme) << rows;
  }
}

}  // namespace
}  // namespace poseidon::plan
