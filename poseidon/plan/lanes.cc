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
  const double busy_lanes = cluster.bandwidth * cluster.cpu_seconds_per_wire_byte / cluster.sharers_of_link();
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

DividedPayloads::DividedPayloads(std::span<const LayerSpec> layers, const ClusterSpec& cluster, Placement placement)
    : cluster_(cluster), ranks_by_host_(RanksByHost(cluster.host_of_rank)), leaders_(cluster.leaders()) {
  const auto lanes = static_cast<std::uint16_t>(leaders_ * cluster.lanes);
  of_slices_ = DealToLanes(layers, lanes, DividesOver(placement, cluster.shards()));
  of_factors_ = DealToLanes(layers, lanes, 0);
}

LayerPayload DividedPayloads::Of(std::size_t index, const LayerSpec& layer, std::span<const Slice> slices,
                                 const LayerPlan& plan) const {
  LayerPayload whole = PayloadOf(layer, slices, plan, cluster_);
  if (leaders_ == 1 || layer.is_table() || GoesFromWorkerToWorker(RowOf(plan.scheme), layer, cluster_)) return whole;
  LayerPayload divided{.workers = std::vector<NodeBytes>(cluster_.workers), .servers = {}};
  const auto add = [&](std::uint16_t lane, const LayerPayload& of_hosts) {
    for (const std::vector<std::uint16_t>& ranks : ranks_by_host_) {
      NodeBytes& own = divided.workers[ranks[lane / cluster_.lanes]];
      own = own + of_hosts.workers[ranks.front()];
    }
  };
  const std::uint16_t lane = TakesFactors(plan.scheme) ? of_factors_[index] : of_slices_[index];
  if (lane != kEveryLane) {
    add(lane, whole);
    return divided;
  }
  const auto lanes = static_cast<std::uint16_t>(leaders_ * cluster_.lanes);
  const std::vector<std::vector<Slice>> of_layer = {{slices.begin(), slices.end()}};
  for (std::uint16_t each = 0; each < lanes; ++each) {
    add(each, PayloadOf(layer, SlicesOfLane(of_layer, std::span(&kEveryLane, 1), {each, lanes})[0], plan, cluster_));
  }
  return divided;
}

std::vector<LayerPayload> PayloadsOf(std::span<const LayerSpec> layers, const std::vector<std::vector<Slice>>& slices,
                                     std::span<const LayerPlan> plans, const ClusterSpec& cluster, Placement placement) {
  const DividedPayloads divided(layers, cluster, placement);
  std::vector<LayerPayload> payloads;
  for (std::size_t i = 0; i < layers.size(); ++i) payloads.push_back(divided.Of(i, layers[i], slices[i], plans[i]));
  return payloads;
}

}  // namespace poseidon::plan
