// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/payload.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/plan/schemes.h"
#include "poseidon/plan/units_range.h"

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

LayerPayload FactorScatterPayload(const FactorShape& shape, DType dtype,
                                  std::span<const std::uint32_t> rows, std::uint32_t workers,
                                  std::uint32_t servers, std::uint16_t shards) {
  // Bytes that an owner gets of each row of factors, and bytes of its slice.
  struct Owned {
    std::uint64_t row = 0;
    std::uint64_t slice = 0;
  };
  std::vector<Owned> owned(servers == 0 ? workers : servers);
  Owned all;
  for (const UnitRange& range : DivideUnits(shape, shards)) {
    const std::uint64_t row = (range.count + shape.inputs) * SizeOf(dtype);
    const std::uint64_t slice = range.count * (shape.inputs + (shape.bias ? 1 : 0)) * SizeOf(dtype);
    // Where servers share workers' machines there may be more shards than owners.
    Owned& owner = owned[range.shard % owned.size()];
    owner = {owner.row + row, owner.slice + slice};
    all = {all.row + row, all.slice + slice};
  }
  // With K rows a worker and P owners of equal parts a worker sends (P - 1) K (M / P + N) numbers of factors and
  // (P - 1) M N / P numbers of results (docs/decisions/schemes.md).
  const std::uint64_t all_rows = std::accumulate(rows.begin(), rows.end(), std::uint64_t{0});
  LayerPayload payload;
  for (std::uint32_t i = 0; i < workers; ++i) {
    const std::uint64_t own_rows = rows.empty() ? 0 : rows[i];
    const Owned own = servers == 0 ? owned[i] : Owned{};
    const std::uint64_t others = servers == 0 ? workers - 1 : 0;  // that it gives its slice
    payload.workers.push_back(
        {.sent = own_rows * (all.row - own.row) + others * own.slice,
         .received = (servers == 0 ? all_rows - own_rows : 0) * own.row + (all.slice - own.slice)});
  }
  for (std::uint32_t s = 0; s < servers; ++s) {
    payload.servers.push_back({.sent = workers * owned[s].slice, .received = all_rows * owned[s].row});
  }
  return payload;
}

LayerPayload AtLeaders(LayerPayload payload, const ClusterSpec& cluster) {
  if (cluster.host_of_rank.empty()) return payload;
  // The other workers of a host exchange through its memory, which is no payload.
  const std::vector<NodeBytes> hosts =
      std::exchange(payload.workers, std::vector<NodeBytes>(cluster.workers));
  const auto ranks = RanksByHost(cluster.host_of_rank);
  for (std::size_t host = 0; host < hosts.size(); ++host) payload.workers[ranks[host].front()] = hosts[host];
  return payload;
}

LayerPayload PayloadOf(const LayerSpec& layer, std::span<const Slice> slices,
                       const LayerPlan& layer_plan, const ClusterSpec& cluster) {
  const SchemeRow& row = RowOf(layer_plan.scheme);
  POSEIDON_CHECK(!row.takes_factors || layer.factors.has_value(),
                 "factors are sent of a layer that has none");
  LayerPayload payload = row.payload(InputOf(row, layer, slices, cluster, layer_plan.measured.rows));
  return GoesFromWorkerToWorker(row, layer, cluster) ? payload : AtLeaders(std::move(payload), cluster);
}

}  // namespace poseidon::plan
