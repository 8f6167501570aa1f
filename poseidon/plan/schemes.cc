// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/schemes.h"

#include <algorithm>
#include <numeric>

#include "poseidon/base/check.h"
#include "poseidon/plan/units_range.h"

namespace poseidon::plan {
namespace {

std::uint64_t AllRows(const SchemeInput& input) {
  return std::accumulate(input.rows.begin(), input.rows.end(), std::uint64_t{0});
}

std::uint64_t MostOutputsOfAnOwner(const SchemeInput& input) {
  std::vector<std::uint64_t> outputs(input.servers == 0 ? input.contributors : input.servers);
  for (const UnitRange& range : DivideUnits(*input.layer.factors, input.shards)) {
    outputs[range.shard % outputs.size()] += range.count;
  }
  return *std::max_element(outputs.begin(), outputs.end());
}

constexpr SchemeRow kRows[] = {
    {.scheme = Scheme::kKeyValue,
     .name = "kv",
     .sends = "slices",
     .why_alone = "its gradient is not a product of factors",
     .takes_factors = false,
     .needs_equal_products = false,
     .through_shards = true,
     .trips = 2,  // push there, sum back
     .applies = [](const LayerSpec& layer) { return !layer.is_table(); },
     .payload =
         [](const SchemeInput& in) {
           return KeyValuePayload(in.slices, in.layer.dtype, in.contributors, in.servers);
         },
     .products = [](const SchemeInput&) { return Products{}; }},
    {.scheme = Scheme::kFactorBroadcast,
     .name = "sfb",
     .sends = "factors",
     .why_alone = "the rows of a table go to every worker as they are",
     .takes_factors = true,
     .needs_equal_products = true,
     .through_shards = false,
     .trips = 1,
     .applies = [](const LayerSpec& layer) { return layer.factors.has_value(); },
     .payload =
         [](const SchemeInput& in) {
           LayerPayload payload = FactorPayload(*in.layer.factors, in.layer.dtype, in.rows);
           payload.workers.resize(in.contributors);  // where no rows are known
           // Dedicated servers move nothing here, but LayerPayload has an entry for each.
           payload.servers.resize(in.servers);
           return payload;
         },
     .products =
         [](const SchemeInput& in) {
           return Products{.worker = in.layer.factors->product_flops(AllRows(in))};
         }},
    // Project Adam's (Chilimbi et al., OSDI 2014): each owner multiplies for its slice alone.
    {.scheme = Scheme::kFactorScatter,
     .name = "fsc",
     .sends = "scattered factors",
     .why_alone = {},  // kv applies where it does
     .takes_factors = true,
     .needs_equal_products = false,  // one member makes each slice
     .through_shards = true,
     .trips = 2,  // factors there, the slice back
     .applies = [](const LayerSpec& layer) { return layer.factors && !layer.is_table(); },
     .payload =
         [](const SchemeInput& in) {
           return FactorScatterPayload(*in.layer.factors, in.layer.dtype, in.rows, in.contributors,
                                       in.servers, in.shards);
         },
     .products =
         [](const SchemeInput& in) {
           // All rows, the outputs of one owner: for equal workers as many FLOP as a worker's own product in backward
           // (docs/decisions/schemes.md). Where servers are dedicated, no worker multiplies.
           FactorShape slice = *in.layer.factors;
           slice.outputs = MostOutputsOfAnOwner(in);
           const double flops = slice.product_flops(AllRows(in));
           return in.servers == 0 ? Products{.worker = flops} : Products{.server = flops};
         }},
};

std::string Listed(std::span<const Scheme> schemes, std::string_view before = {}) {
  std::string names;
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    if (i > 0) names += i + 1 == schemes.size() ? " or " : ", ";
    names.append(before).append(NameOf(schemes[i]));
  }
  return names;
}

}  // namespace

std::span<const SchemeRow> Schemes() { return kRows; }

bool GoesFromWorkerToWorker(const SchemeRow& row, const LayerSpec& layer, const ClusterSpec& cluster) {
  return row.takes_factors && (layer.is_table() || cluster.factors_are_flat());
}

SchemeInput InputOf(const SchemeRow& row, const LayerSpec& layer, std::span<const Slice> slices,
                    const ClusterSpec& cluster, std::span<const std::uint32_t> rows) {
  SchemeInput input{.layer = layer,
                    .slices = slices,
                    .rows = {},
                    .contributors = cluster.contributors(),
                    .servers = cluster.servers,
                    .shards = cluster.shards()};
  if (!GoesFromWorkerToWorker(row, layer, cluster)) {
    input.rows = SumByHost(cluster.host_of_rank, rows);
    return input;
  }
  input.rows.assign(rows.begin(), rows.end());
  input.contributors = cluster.workers;
  if (cluster.servers == 0) input.shards = static_cast<std::uint16_t>(cluster.workers);
  return input;
}

std::size_t IndexOf(Scheme scheme) {
  const auto* const row = std::find_if(std::begin(kRows), std::end(kRows),
                                       [&](const SchemeRow& r) { return r.scheme == scheme; });
  POSEIDON_CHECK(row != std::end(kRows), "a scheme has a row");
  return static_cast<std::size_t>(row - std::begin(kRows));
}

const SchemeRow& RowOf(Scheme scheme) { return kRows[IndexOf(scheme)]; }

bool IsValid(Scheme scheme) {
  return std::any_of(std::begin(kRows), std::end(kRows),
                     [&](const SchemeRow& row) { return row.scheme == scheme; });
}

std::string_view NameOf(Scheme scheme) { return IsValid(scheme) ? RowOf(scheme).name : "?"; }

std::optional<Scheme> ParseScheme(std::string_view name) {
  for (const SchemeRow& row : kRows) {
    if (row.name == name) return row.scheme;
  }
  return std::nullopt;
}

bool TakesFactors(Scheme scheme) { return RowOf(scheme).takes_factors; }

std::string SchemeNames(std::string_view before) {
  std::vector<Scheme> all;
  for (const SchemeRow& row : kRows) all.push_back(row.scheme);
  return Listed(all, before);
}

std::vector<Scheme> SchemesFor(const LayerSpec& layer) {
  std::vector<Scheme> schemes;
  for (const SchemeRow& row : kRows) {
    if (row.applies(layer)) schemes.push_back(row.scheme);
  }
  return schemes;
}

std::string SchemeNamesFor(const LayerSpec& layer) { return Listed(SchemesFor(layer)); }

}  // namespace poseidon::plan
