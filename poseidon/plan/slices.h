// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_SLICES_H_
#define POSEIDON_PLAN_SLICES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "poseidon/plan/layer.h"

namespace poseidon::plan {

// The part [first, first + count) of a layer's flat gradient, in elements, that one shard owns.
struct Slice {
  std::uint16_t shard = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;  // never 0

  friend bool operator==(const Slice&, const Slice&) = default;
};

// How layers are spread over shards.
enum class Placement : std::uint8_t {
  kEven,   // Poseidon's: every layer in equal slices, a small one whole at the owner with the fewest bytes so far
  kWhole,  // to compare with, as key-value stores of 2017: every layer whole at one owner, owners in turn
};

// A tensor of fewer bytes has one owner.
inline constexpr std::uint64_t kSmallTensorBytes = 4096;
// Slices begin at multiples of this many elements, and their sizes differ by at most as many.
inline constexpr std::uint64_t kSliceUnit = 16;

// The slices of a tensor: in order, disjoint, covering it exactly. At most one per shard, ascending
// shards; shards that would own nothing have none. A small tensor goes whole to `small_owner`.
std::vector<Slice> MakeSlices(std::uint64_t elements, DType dtype, std::uint16_t shards,
                              std::uint16_t small_owner);

// The slices of every layer, in declaration order. The owners of small tensors are chosen so that
// the bytes per shard come out even: the largest first, each to the shard that has the least (the
// lowest of equals). With kWhole layer i belongs to shard i modulo shards, whatever its size. The
// same on every member, and independent of the plan.
std::vector<std::vector<Slice>> AssignSlices(std::span<const LayerSpec> layers,
                                             std::uint16_t shards,
                                             Placement placement = Placement::kEven);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_SLICES_H_
