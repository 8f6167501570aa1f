// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_CLUSTER_H_
#define POSEIDON_PLAN_CLUSTER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "poseidon/plan/hosts.h"

namespace poseidon::plan {

// The speeds of the machines and of the network between them. A rate of 0 means unknown: whatever it
// would limit is then predicted to take no time.
struct ClusterSpec {
  std::uint32_t workers = 1;  // P
  std::uint32_t servers = 0;  // S dedicated server processes; 0: every worker hosts a shard
  // The dedicated servers run on the first S workers' machines and share their links.
  bool servers_share_worker_hosts = false;
  // Where workers of one host combine first (plan/hosts.h): the host of each rank. Empty: flat workers.
  std::vector<std::uint32_t> host_of_rank = {};
  double copy_bytes_per_second = 0;  // to and from the memory that a host's workers share
  double bandwidth = 0;      // bytes per second and direction that a worker gets while all send
  double latency = 0;        // seconds one way
  double rebuild_flops = 0;  // FLOP per second of the product that rebuilds a gradient from factors
  // CPU seconds that one byte costs its sender and its receiver together, the sum included: about
  // 0.6e-9, encrypted 1.5e-9. 0 where an accelerator computes.
  double cpu_seconds_per_wire_byte = 0;
  double cores_per_worker = 1;  // less than 1 where workers outnumber cores
  std::uint32_t compute_threads =
      1;  // cores beyond these serve the network without slowing compute
  std::uint16_t lanes = 1;  // of every member (plan/lanes.h)

  // How many take part in the exchange of gradients: hosts where workers combine first, else workers.
  std::uint32_t contributors() const {
    return host_of_rank.empty() ? workers : HostCount(host_of_rank);
  }
  // Whether factors go from worker to worker although gradients are combined (plan/hosts.h).
  bool factors_are_flat() const { return FactorsAreFlat(host_of_rank, servers); }
  // Of schemes that take factors: how many take part, and the rows of each. `rows`: by rank, empty where unknown.
  std::uint32_t factor_contributors() const { return factors_are_flat() ? workers : contributors(); }
  std::vector<std::uint32_t> RowsByContributor(std::span<const std::uint32_t> rows) const {
    return factors_are_flat() ? std::vector<std::uint32_t>(rows.begin(), rows.end()) : SumByHost(host_of_rank, rows);
  }
  // Of every host (plan/hosts.h).
  std::uint16_t leaders() const { return LeadersPerHost(host_of_rank, servers); }
  std::uint16_t sharers_of_link() const { return SharersOfLink(host_of_rank, servers); }
  // Shards of the key-value store.
  std::uint16_t shards() const {
    return static_cast<std::uint16_t>(servers == 0 ? contributors() : servers);
  }

  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;
};

// The first steps' measurements of one declared layer. The work of undeclared neighbours (pooling,
// activation, loss) and the update count with the declared layer before them, so that the sums over
// all layers are the whole step's compute. Times are the slowest worker's.
struct LayerMeasurement {
  double forward_seconds = 0;
  double backward_seconds = 0;
  // Of a layer with factors: backward_seconds holds the product that makes the weight gradient. It
  // does not where the layer was already broadcasting factors while it was measured.
  bool backward_has_weight_product = true;
  std::vector<std::uint32_t> rows = {};  // gradient rows of each rank; empty: unknown

  friend bool operator==(const LayerMeasurement&, const LayerMeasurement&) = default;
};

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_CLUSTER_H_
