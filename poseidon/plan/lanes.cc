// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/lanes.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "poseidon/base/check.h"
#include "poseidon/plan/schemes.h"

namespace poseidon::plan {
namespace {

// A lane's part of a slice has at least so many bytes: below, the frames and completions of one more part cost what the
// second thread gains.
constexpr std::uint64_t kLeastPartBytes = 16 * 1024;

}  // namespace

std::uint16_t LanesFor(const ClusterSpec& cluster) {
  const double busy_lanes = cluster.bandwidth * cluster.cpu_seconds_per_wire_byte / cluster.leaders();
  const double spare_cores = std::floor(cluster.cores_per_worker - cluster.compute_threads);
  return static_cast<std::uint16_t>(
      std::clamp<double>(std::min(std::ceil(busy_lanes), spare_cores), 1, kMostChosenLanes));
}

std::vector<std::uint16_t> DealToLanes(std::span<const LayerSpec> layers, std::uint16_t lanes, std::uint16_t shards) {
  POSEIDON_CHECK(lanes > 0, "layers need a lane");
  std::vector<std::uint16_t> lane_of_layer(layers.size(), 0);
  if (lanes == 1) return lane_of_layer;
  std::vector<std::size_t> whole;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool divided = shards > 0 && layers[i].bytes() / shards >= (lanes + 1) * kLeastPartBytes;
    if (divided) {
      lane_of_layer[i] = kEveryLane;
    } else {
      whole.push_back(i);
    }
  }
  std::ranges::stable_sort(whole, [&](std::size_t a, std::size_t b) { return layers[a].bytes() > layers[b].bytes(); });
  std::vector<std::uint64_t> load(lanes, 0);
  for (const std::size_t i : whole) {
    const auto lane = static_cast<std::uint16_t>(std::ranges::min_element(load) - load.begin());
    lane_of_layer[i] = lane;
    load[lane] += layers[i].bytes();
  }
  return lane_of_layer;
}

std::vector<std::vector<Slice>> SlicesOfLane(const std::vector<std::vector<Slice>>& slices,
                                             std::span<const std::uint16_t> lane_of_layer, LaneShare share) {
  POSEIDON_CHECK(share.lane < share.lanes && slices.size() == lane_of_layer.size(), "a lane is one of its lanes");
  std::vector<std::vector<Slice>> own(slices.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (lane_of_layer[i] == share.lane) own[i] = slices[i];
    if (lane_of_layer[i] != kEveryLane) continue;
    for (const Slice& slice : slices[i]) {
      // Whole units, so that a part begins where vector loads are aligned; the last lane has what is left of one.
      const std::uint64_t units = slice.count / kSliceUnit;
      const std::uint64_t begin = units * share.lane / share.lanes * kSliceUnit;
      const bool last = share.lane + 1 == share.lanes;
      const std::uint64_t end = last ? slice.count : units * (share.lane + 1u) / share.lanes * kSliceUnit;
      own[i].push_back({.shard = slice.shard, .first = slice.first + begin, .count = end - begin});
    }
  }
  return own;
}

std::vector<std::vector<std::vector<Stretch>>> StretchesOfLeaders(std::span<const LayerSpec> layers,
                                                                  const std::vector<std::vector<Slice>>& slices,
                                                                  std::span<const std::uint16_t> lane_of_layer,
                                                                  std::uint16_t leaders, std::uint16_t lanes) {
  const auto all = static_cast<std::uint16_t>(leaders * lanes);
  std::vector<std::vector<std::vector<Stretch>>> of_layers(layers.size(), std::vector<std::vector<Stretch>>(leaders));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (lane_of_layer[i] != kEveryLane) of_layers[i][lane_of_layer[i] / lanes] = {{0, layers[i].elements}};
  }
  for (std::uint16_t lane = 0; lane < all; ++lane) {
    const auto own = SlicesOfLane(slices, lane_of_layer, {lane, all});
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (lane_of_layer[i] != kEveryLane) continue;
      std::vector<Stretch>& of_leader = of_layers[i][lane / lanes];
      for (const Slice& slice : own[i]) of_leader.push_back({slice.first, slice.count});
    }
  }
  for (auto& of_layer : of_layers) {
    for (std::vector<Stretch>& stretches : of_layer) {
      std::ranges::sort(stretches, {}, &Stretch::first);
      std::vector<Stretch> joined;
      for (const Stretch& one : stretches) {
        if (!joined.empty() && joined.back().first + joined.back().count == one.first) {
          joined.back().count += one.count;
        } else {
          joined.push_back(one);
        }
      }
      stretches = std::move(joined);
    }
  }
  return of_layers;
}

std::vector<LayerPayload> PayloadsOf(std::span<const LayerSpec> layers, const std::vector<std::vector<Slice>>& slices,
                                     std::span<const LayerPlan> plans, const ClusterSpec& cluster) {
  const std::uint16_t leaders = cluster.leaders();
  const auto all = static_cast<std::uint16_t>(leaders * cluster.lanes);
  const std::vector<std::uint16_t> of_slices = DealToLanes(layers, all, cluster.shards());
  const std::vector<std::uint16_t> of_factors = DealToLanes(layers, all, 0);
  std::vector<LayerPayload> payloads;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    LayerPayload whole = PayloadOf(layers[i], slices[i], plans[i], cluster);
    if (leaders == 1 || layers[i].is_table()) {
      payloads.push_back(std::move(whole));
      continue;
    }
    LayerPayload divided{.workers = std::vector<NodeBytes>(cluster.workers), .servers = {}};
    const auto add = [&](std::uint16_t lane, const LayerPayload& of_hosts) {
      for (std::uint32_t host = 0; host < cluster.contributors(); ++host) {
        const std::vector<std::uint16_t> ranks = RanksOf(cluster.host_of_rank, host);
        NodeBytes& own = divided.workers[ranks[lane / cluster.lanes]];
        own = own + of_hosts.workers[ranks.front()];
      }
    };
    const std::uint16_t lane = TakesFactors(plans[i].scheme) ? of_factors[i] : of_slices[i];
    if (lane != kEveryLane) {
      add(lane, whole);
    } else {
      for (std::uint16_t each = 0; each < all; ++each) {
        const auto own = SlicesOfLane({slices[i]}, std::span(&kEveryLane, 1), {each, all});
        add(each, PayloadOf(layers[i], own[0], plans[i], cluster));
      }
    }
    payloads.push_back(std::move(divided));
  }
  return payloads;
}

}  // namespace poseidon::plan
