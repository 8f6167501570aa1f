// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/payload.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/plan/schemes.h"

namespace poseidon::plan {

NodeBytes BusiestWorker(const LayerPayload& payload) {
  NodeBytes most;
  for (const NodeBytes& worker : payload.workers) {
    most.sent = std::max(most.sent, worker.sent);
    most.received = std::max(most.received, worker.received);
  }
  return most;
}

LayerPayload KeyValuePayload(std::span<const Slice> slices, DType dtype, std::uint32_t workers,
                             std::uint32_t servers) {
  std::uint64_t whole = 0;
  std::vector<std::uint64_t> owned(servers == 0 ? workers : servers, 0);
  for (const Slice& slice : slices) {
    POSEIDON_CHECK(slice.shard < owned.size(), "a slice belongs to a shard that does not exist");
    owned[slice.shard] += slice.count * SizeOf(dtype);
    whole += slice.count * SizeOf(dtype);
  }
  LayerPayload payload;
  if (servers > 0) {
    payload.workers.assign(workers, NodeBytes{.sent = whole, .received = whole});
    for (const std::uint64_t bytes : owned) {
      payload.servers.push_back({.sent = workers * bytes, .received = workers * bytes});
    }
    return payload;
  }
  for (const std::uint64_t bytes : owned) {
    // Contributions to the others' slices out, P - 1 contributions to the own one in; then sums the
    // opposite way: as many bytes each way.
    const std::uint64_t each_way = (whole - bytes) + bytes * (workers - 1);
    payload.workers.push_back({.sent = each_way, .received = each_way});
  }
  return payload;
}

LayerPayload FactorPayload(const FactorShape& shape, DType dtype,
                           std::span<const std::uint32_t> rows) {
  const std::uint64_t row_bytes = shape.bytes_per_row(dtype);
  const std::uint64_t all_rows = std::accumulate(rows.begin(), rows.end(), std::uint64_t{0});
  LayerPayload payload;
  for (const std::uint32_t own : rows) {
    payload.workers.push_back(
        {.sent = own * (rows.size() - 1) * row_bytes, .received = (all_rows - own) * row_bytes});
  }
  return payload;
}

LayerPayload AtLeaders(LayerPayload payload, const ClusterSpec& cluster) {
  if (cluster.host_of_rank.empty()) return payload;
  const std::vector<NodeBytes> hosts =
      std::exchange(payload.workers, std::vector<NodeBytes>(cluster.workers));
  for (std::uint32_t host = 0; host < hosts.size(); ++host) {
    payload.workers[RanksOf(cluster.host_of_rank, host).front()] = hosts[host];
  }
  return payload;
}

LayerPayload PayloadOf(const LayerSpec& layer, std::span<const Slice> slices,
                       const LayerPlan& layer_plan, const ClusterSpec& cluster) {
  const SchemeRow& row = RowOf(layer_plan.scheme);
  POSEIDON_CHECK(!row.takes_factors || layer.factors.has_value(),
                 "factors are sent of a layer that has none");
  LayerPayload payload = row.payload(InputOf(row, layer, slices, cluster, layer_plan.measured.rows));
  const bool of_workers = row.takes_factors && layer.is_table();
  return of_workers ? payload : AtLeaders(std::move(payload), cluster);
}

}  // namespace poseidon::plan
