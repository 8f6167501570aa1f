// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_LANES_H_
#define POSEIDON_PLAN_LANES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "poseidon/plan/cluster.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/payload.h"
#include "poseidon/plan/plan.h"
#include "poseidon/plan/slices.h"

// A lane is a thread of the network with connections of its own to every peer. Members that have several share their
// layers among them, alike on all members, so that one core no longer bounds what a member sends and receives. Where
// workers combine on their hosts, the lanes of a host are those of all its leaders: the first leader has the first ones.
namespace poseidon::plan {

inline constexpr std::uint16_t kMaxLanes = 16;
// Lanes that are chosen and not asked for.
inline constexpr std::uint16_t kMostChosenLanes = 8;

// One lane of `lanes`.
struct LaneShare {
  std::uint16_t lane = 0;
  std::uint16_t lanes = 1;
  friend bool operator==(const LaneShare&, const LaneShare&) = default;
};

// Instead of a lane's number: every lane carries a part of the layer.
inline constexpr std::uint16_t kEveryLane = 0xffff;

// Returns how many lanes the members of `cluster` need to fill their links: a byte that is sent and one that is received
// together take `cpu_seconds_per_wire_byte` of a lane's thread, so that one lane carries its inverse per second and direction.
// At most the cores beyond those that compute, where a lane more would take its time from computing, and at least 1. 1 where
// rate or costs are unknown. The leaders of a host carry its link together.
std::uint16_t LanesFor(const ClusterSpec& cluster);

// Returns the lane of every layer. Where `shards` is not 0, a layer whose every slice has bytes for all lanes goes through
// all of them (kEveryLane). The others go whole through one: the largest first, each through the lane that has the fewest
// bytes so far (the lowest of equals). The same on every member, and independent of the plan.
std::vector<std::uint16_t> DealToLanes(std::span<const LayerSpec> layers, std::uint16_t lanes, std::uint16_t shards);

// Returns what the lane of `share` carries of `slices` (AssignSlices), by the lanes of DealToLanes: a part of every slice of
// a layer that goes through all lanes, all slices of a layer of its own, and nothing of the others.
std::vector<std::vector<Slice>> SlicesOfLane(const std::vector<std::vector<Slice>>& slices,
                                             std::span<const std::uint16_t> lane_of_layer, LaneShare share);

// Numbers [first, first + count) of a layer's flat gradient.
struct Stretch {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

// Returns what each of a host's `leaders` exchanges of every layer, by layer and leader, ascending: what its `lanes` lanes
// carry.
std::vector<std::vector<std::vector<Stretch>>> StretchesOfLeaders(std::span<const LayerSpec> layers,
                                                                  const std::vector<std::vector<Slice>>& slices,
                                                                  std::span<const std::uint16_t> lane_of_layer,
                                                                  std::uint16_t leaders, std::uint16_t lanes);

// Over how many shards DealToLanes is to divide layers whose slices are placed like this: compared systems divide none.
constexpr std::uint16_t DividesOver(Placement placement, std::uint16_t shards) {
  return placement == Placement::kEven ? shards : 0;
}

// What every worker moves (PayloadOf), a host's traffic at those of its leaders that carry it.
class DividedPayloads {
 public:
  // `layers` are all of the model's. Nothing is referred to afterwards.
  DividedPayloads(std::span<const LayerSpec> layers, const ClusterSpec& cluster, Placement placement);
  LayerPayload Of(std::size_t index, const LayerSpec& layer, std::span<const Slice> slices, const LayerPlan& plan) const;

 private:
  const ClusterSpec cluster_;
  const std::vector<std::vector<std::uint16_t>> ranks_by_host_;
  const std::uint16_t leaders_;
  std::vector<std::uint16_t> of_slices_;   // lanes, by layer (DealToLanes)
  std::vector<std::uint16_t> of_factors_;
};
// Of every layer.
std::vector<LayerPayload> PayloadsOf(std::span<const LayerSpec> layers, const std::vector<std::vector<Slice>>& slices,
                                     std::span<const LayerPlan> plans, const ClusterSpec& cluster,
                                     Placement placement = Placement::kEven);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_LANES_H_
