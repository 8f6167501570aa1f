// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_SCHEMES_H_
#define POSEIDON_PLAN_SCHEMES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "poseidon/plan/cluster.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/payload.h"
#include "poseidon/plan/scheme.h"
#include "poseidon/plan/slices.h"

// The table of schemes: all that planner, cost model, payload and explanation know of one. A new
// scheme is a number in scheme.h and a row here.
namespace poseidon::plan {

// One layer and who exchanges it. Where workers combine on their hosts first, hosts contribute, each
// the rows of all its workers; of a table, and of factors on one host, every worker contributes for itself.
struct SchemeInput {
  const LayerSpec& layer;
  std::span<const Slice> slices;    // of the layer, over `shards`
  std::vector<std::uint32_t> rows;  // of the factors, by contributor; empty where unknown
  std::uint32_t contributors = 1;
  std::uint32_t servers = 0;  // dedicated ones; 0: shard s belongs to contributor s
  std::uint16_t shards = 1;
};

// FLOP of the products that make the sum of all contributors' factors once they have arrived: of the
// worker that computes most and of the dedicated server that does.
struct Products {
  double worker = 0;
  double server = 0;
};

struct SchemeRow {
  Scheme scheme;
  std::string_view name;
  std::string_view sends;      // "slices", in a plan's reasons
  std::string_view why_alone;  // a plan's reason where no other scheme applies to the layer
  bool takes_factors;          // else the flat gradient; the weight's product is not made in backward
  // The replicas stay equal only if all members compute the same bits in the product of the factors.
  bool needs_equal_products;
  bool through_shards;  // the owners of shards add up: dedicated servers take part
  int trips;            // one-way latencies between a push and its mean
  bool (*applies)(const LayerSpec& layer);
  LayerPayload (*payload)(const SchemeInput& input);
  Products (*products)(const SchemeInput& input);
};

// Whether every worker takes part for itself, also where workers combine on their hosts first. So do rows of a table, whose sum would
// lose the order of ranks and what a clip of gradients needs (docs/decisions/table-rows.md), and factors on one host (FactorsAreFlat).
bool GoesFromWorkerToWorker(const SchemeRow& row, const LayerSpec& layer, const ClusterSpec& cluster);

// `rows`: of each rank, as measured; empty where unknown. The result refers to `layer` and `slices`.
SchemeInput InputOf(const SchemeRow& row, const LayerSpec& layer, std::span<const Slice> slices,
                    const ClusterSpec& cluster, std::span<const std::uint32_t> rows);

// In the order in which they are preferred where nothing speaks for one of them: the simplest first.
std::span<const SchemeRow> Schemes();
const SchemeRow& RowOf(Scheme scheme);
// Those that apply to the layer, and their names in a sentence: "kv, sfb or fsc".
std::vector<Scheme> SchemesFor(const LayerSpec& layer);
std::string SchemeNamesFor(const LayerSpec& layer);
// The place of a scheme's row in Schemes(), for tables of something by scheme.
std::size_t IndexOf(Scheme scheme);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_SCHEMES_H_
