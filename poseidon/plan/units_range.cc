// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/units_range.h"

#include "poseidon/base/check.h"

namespace poseidon::plan {

std::vector<UnitRange> DivideUnits(const FactorShape& shape, std::uint16_t shards) {
  POSEIDON_CHECK(shards > 0, "units need a shard to own them");
  std::vector<UnitRange> ranges;
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    // kMaxElements times the number of shards fits 64 bits.
    const std::uint64_t first = shape.outputs * shard / shards;
    const std::uint64_t end = shape.outputs * (shard + 1) / shards;
    if (end == first) continue;
    ranges.push_back({.shard = static_cast<std::uint16_t>(shard), .first = first, .count = end - first});
  }
  return ranges;
}

}  // namespace poseidon::plan
