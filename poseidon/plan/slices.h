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
  kEven,   // Poseidon's: every layer in equal slices, a small one in fewer, at the owners with the fewest bytes so far
  kWhole,  // to compare with, as key-value stores of 2017: every layer whole at one owner, owners in turn
  kPairs,  // to compare with, as the Poseidon of 2017: pairs of kPairBytes, owners in turn; an owner's pairs of one layer are one slice
};

// A slice has at least so many bytes, unless it is the whole tensor: a message costs as much as so many bytes on a fast link.
inline constexpr std::uint64_t kLeastSliceBytes = 4096;
// With kPairs.
inline constexpr std::uint64_t kPairBytes = 4u << 20;
// Otherwise slices begin at multiples of this many elements, and their sizes differ by at most as many.
inline constexpr std::uint64_t kSliceUnit = 16;

// The slices of a tensor: in order, disjoint, covering it exactly. At most one per shard, ascending shards. A tensor that is
// too small for a slice at every shard has as many as it fills, at `first_owner` and those that follow it, the first shard
// behind the last. None of a tensor without elements.
std::vector<Slice> MakeSlices(std::uint64_t elements, DType dtype, std::uint16_t shards, std::uint16_t first_owner);

// The slices of every layer, in declaration order. The owners of tensors that are too small for a slice at every shard are
// chosen so that the bytes per shard come out even: the largest first, each to the shards that have the least (the
// lowest of equals). With kWhole layer i belongs to shard i modulo shards, whatever its size. With kPairs a layer begins at
// the owner at whom the layer before ended, and two owners' slices differ by a pair at most. The same on every member, and independent of the plan.
std::vector<std::vector<Slice>> AssignSlices(std::span<const LayerSpec> layers, std::uint16_t shards,
                                             Placement placement = Placement::kEven);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_SLICES_H_
