// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_UNITS_RANGE_H_
#define POSEIDON_PLAN_UNITS_RANGE_H_

#include <cstdint>
#include <vector>

#include "poseidon/plan/layer.h"

namespace poseidon::plan {

// The output units [first, first + count) of a fully connected layer: the rows of its weight, and the
// entries of its bias, whose sum the owner of one shard makes from all workers' factors.
struct UnitRange {
  std::uint16_t shard = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;  // never 0

  friend bool operator==(const UnitRange&, const UnitRange&) = default;
};

// Divides the M outputs of `shape` over the shards, [M s / S, M (s + 1) / S) for shard s: in order,
// disjoint, covering all, in sizes that differ by one at most. Shards that would have none have no
// range. The same on every member. Pre: shards > 0.
std::vector<UnitRange> DivideUnits(const FactorShape& shape, std::uint16_t shards);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_UNITS_RANGE_H_
