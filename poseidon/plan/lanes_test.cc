// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "poseidon/base/random.h"

namespace poseidon::plan {
namespace {

LayerSpec LaneLayer(std::uint64_t elements) {
  return {.name = std::to_string(elements), .shape = std::to_string(elements), .elements = elements};
}

ClusterSpec LaneCluster(double bandwidth, double cpu_seconds_per_byte, double cores, std::uint32_t compute_threads = 1) {
  ClusterSpec cluster;
  cluster.bandwidth = bandwidth;
  cluster.cpu_seconds_per_wire_byte = cpu_seconds_per_byte;
  cluster.cores_per_worker = cores;
  cluster.compute_threads = compute_threads;
  return cluster;
}

TEST(LanesFor, AsManyAsTheLinkKeepsBusy) {
  EXPECT_EQ(LanesFor(LaneCluster(1.25e9, 1.5e-9, 16)), 2);   // 10 Gbit/s, encrypted: 1.9 threads
  EXPECT_EQ(LanesFor(LaneCluster(1.25e9, 0.6e-9, 16)), 1);   // plain: 0.75
  EXPECT_EQ(LanesFor(LaneCluster(3.125e9, 1.5e-9, 16)), 5);  // 25 Gbit/s: 4.7
  EXPECT_EQ(LanesFor(LaneCluster(12.5e9, 1.5e-9, 64)), kMostChosenLanes);
}

TEST(LanesFor, TheLeadersOfAHostCarryItsLinkTogether) {
  ClusterSpec cluster = LaneCluster(3.125e9, 1.5e-9, 16);
  cluster.workers = 4;
  cluster.host_of_rank = {0, 0, 1, 1};
  EXPECT_EQ(LanesFor(cluster), 3);
}

TEST(LanesFor, NoneTakesACoreFromComputing) {
  EXPECT_EQ(LanesFor(LaneCluster(3.125e9, 1.5e-9, 4, 2)), 2);
  EXPECT_EQ(LanesFor(LaneCluster(3.125e9, 1.5e-9, 2, 2)), 1);
  EXPECT_EQ(LanesFor(LaneCluster(3.125e9, 1.5e-9, 0.5)), 1);
}

TEST(LanesFor, OneWhereNothingIsKnown) {
  EXPECT_EQ(LanesFor(LaneCluster(0, 1.5e-9, 16)), 1);
  EXPECT_EQ(LanesFor(LaneCluster(3e9, 0, 16)), 1);
}

TEST(DealToLanes, LargeLayersGoThroughAllAndTheOthersEvenly) {
  const std::vector<LayerSpec> layers = {LaneLayer(100), LaneLayer(1 << 20), LaneLayer(300), LaneLayer(200)};
  EXPECT_EQ(DealToLanes(layers, 2, 4), (std::vector<std::uint16_t>{1, kEveryLane, 0, 1}));
  EXPECT_EQ(DealToLanes(layers, 1, 4), (std::vector<std::uint16_t>{0, 0, 0, 0}));
  // Nothing is divided.
  EXPECT_EQ(DealToLanes(layers, 2, 0), (std::vector<std::uint16_t>{1, 0, 1, 1}));
}

// Whatever the layers: every element of every slice has exactly one lane, and a lane that has a layer has a part of it.
TEST(SlicesOfLane, LanesTogetherHaveEverySliceOnce) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    const auto lanes = static_cast<std::uint16_t>(1 + random.Below(kMaxLanes));
    const auto shards = static_cast<std::uint16_t>(1 + random.Below(9));
    std::vector<LayerSpec> layers;
    for (std::uint64_t i = 1 + random.Below(6); i > 0; --i) layers.push_back(LaneLayer(1 + random.Below(1 << random.Below(24))));
    const auto slices = AssignSlices(layers, shards);
    const std::vector<std::uint16_t> deal = DealToLanes(layers, lanes, shards);
    std::vector<std::vector<Slice>> parts(layers.size());
    for (std::uint16_t lane = 0; lane < lanes; ++lane) {
      const auto own = SlicesOfLane(slices, deal, {lane, lanes});
      for (std::size_t i = 0; i < layers.size(); ++i) {
        EXPECT_EQ(own[i].empty(), deal[i] != kEveryLane && deal[i] != lane);
        parts[i].insert(parts[i].end(), own[i].begin(), own[i].end());
      }
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
      std::ranges::sort(parts[i], {}, &Slice::first);
      std::uint64_t next = 0;
      for (const Slice& part : parts[i]) {
        EXPECT_EQ(part.first, next);
        EXPECT_GT(part.count, 0u);
        next += part.count;
        const auto of = std::ranges::find_if(slices[i], [&](const Slice& s) { return s.shard == part.shard; });
        EXPECT_TRUE(part.first >= of->first && part.first + part.count <= of->first + of->count);
      }
      EXPECT_EQ(next, layers[i].elements);
    }
  }
}

// Two leaders with two lanes each: of a large layer each has the first or the second half of every slice.
TEST(StretchesOfLeaders, AreWhatTheirLanesCarry) {
  const std::vector<LayerSpec> layers = {LaneLayer(1 << 20), LaneLayer(100), LaneLayer(99)};
  const auto slices = AssignSlices(layers, 2);
  const auto lane_of_layer = DealToLanes(layers, 4, 2);
  ASSERT_EQ(lane_of_layer, (std::vector<std::uint16_t>{kEveryLane, 0, 1}));
  using Stretches = std::vector<Stretch>;
  const std::uint64_t quarter = 1 << 18;
  const auto found = StretchesOfLeaders(layers, slices, lane_of_layer, 2, 2);
  EXPECT_EQ(found[0][0], (Stretches{{0, quarter}, {2 * quarter, quarter}}));
  EXPECT_EQ(found[0][1], (Stretches{{quarter, quarter}, {3 * quarter, quarter}}));
  EXPECT_EQ(found[1][0], (Stretches{{0, 100}}));
  EXPECT_EQ(found[1][1], Stretches{});
  EXPECT_EQ(found[2][0], (Stretches{{0, 99}})) << "its other lane";
  EXPECT_EQ(StretchesOfLeaders(layers, slices, lane_of_layer, 1, 4)[0][0], (Stretches{{0, 4 * quarter}})) << "joined";
}

TEST(PayloadsOf, AHostsTrafficIsItsLeaders) {
  const std::vector<LayerSpec> layers = {LaneLayer(1 << 20), LaneLayer(100)};
  ClusterSpec cluster;
  cluster.workers = 5;
  cluster.host_of_rank = {0, 0, 1, 1, 1};
  const auto slices = AssignSlices(layers, cluster.shards());
  const std::vector<LayerPlan> dense(2);
  const std::vector<LayerPayload> payloads = PayloadsOf(layers, slices, dense, cluster);
  const NodeBytes half{2u << 20, 2u << 20};
  EXPECT_EQ(payloads[0].workers, (std::vector<NodeBytes>{half, half, half, half, {}}));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerPayload of_hosts = PayloadOf(layers[i], slices[i], dense[i], cluster);
    EXPECT_EQ(payloads[i].workers[0] + payloads[i].workers[1], of_hosts.workers[0]);
    EXPECT_EQ(payloads[i].workers[2] + payloads[i].workers[3], of_hosts.workers[2]);
  }
}

}  // namespace
}  // namespace poseidon::plan
