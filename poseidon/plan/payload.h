// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_PAYLOAD_H_
#define POSEIDON_PLAN_PAYLOAD_H_

#include <cstdint>
#include <span>
#include <vector>

#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"
#include "poseidon/plan/slices.h"

// Exact payload of one layer and one step: numbers of gradients and factors, and indices of a table's rows, only; no
// headers, no encryption, no row counts. What a member hands to itself is not payload.
namespace poseidon::plan {

struct NodeBytes {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;

  friend NodeBytes operator+(NodeBytes a, NodeBytes b) {
    return {a.sent + b.sent, a.received + b.received};
  }
  friend bool operator==(const NodeBytes&, const NodeBytes&) = default;
};

struct LayerPayload {
  std::vector<NodeBytes> workers;  // by rank
  std::vector<NodeBytes> servers;  // dedicated ones, by shard; empty without

  friend bool operator==(const LayerPayload&, const LayerPayload&) = default;
};

// The most that any worker sends, and the most that any receives.
NodeBytes BusiestWorker(const LayerPayload& payload);

// With servers == 0 rank i owns shard i: it sends every slice it does not own and the sum of its
// own to P - 1 others, and receives likewise. With dedicated servers a worker sends the whole layer
// and receives it; server s receives its slice from P workers and sends the sum to P.
LayerPayload KeyValuePayload(std::span<const Slice> slices, DType dtype, std::uint32_t workers,
                             std::uint32_t servers);

// Rank i sends rows[i] rows of both factors to each other rank and receives every other rank's.
LayerPayload FactorPayload(const FactorShape& shape, DType dtype,
                           std::span<const std::uint32_t> rows);

// Each shard owns some of the layer's outputs (plan/units_range.h). Rank i sends each owner rows[i] rows
// of the errors of these outputs and of all inputs, and receives its slice of the sum. With servers ==
// 0 rank i owns shard i: it sends its slice to P - 1 others, and nothing to itself. `rows` is empty
// where they are unknown; then only slices count.
LayerPayload FactorScatterPayload(const FactorShape& shape, DType dtype,
                                  std::span<const std::uint32_t> rows, std::uint32_t workers,
                                  std::uint32_t servers, std::uint16_t shards);

// Turns the traffic of hosts, by host, into that of workers, by rank: at the lowest rank of a host is what its leaders move
// together (plan/lanes.h divides it among them). That of flat workers stays as it is.
LayerPayload AtLeaders(LayerPayload payload, const ClusterSpec& cluster);

// By the scheme of `layer_plan`, with the rows it was measured with. Where workers combine on their
// hosts first, a host exchanges what a worker does above, with P hosts and the sum of their rows, and it is booked at the
// lowest rank of each (AtLeaders). Rows of a table go from each worker to each other all the same, and
// on one host all factors (FactorsAreFlat).
LayerPayload PayloadOf(const LayerSpec& layer, std::span<const Slice> slices,
                       const LayerPlan& layer_plan, const ClusterSpec& cluster);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_PAYLOAD_H_
