// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_LAYOUT_H_
#define POSEIDON_LOCAL_LAYOUT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "poseidon/base/result.h"
#include "poseidon/base/strong_id.h"
#include "poseidon/plan/layer.h"

namespace poseidon::local {

// A slot has room for this many rows of factors at least, and for as many as take no more than the dense gradient.
inline constexpr std::uint64_t kLeastRows = 4096;

// Computes where in a host's segment each worker (by its place in rank order) has its slot for each layer, and the place
// behind the last the mean. A slot holds a dense gradient, or the factors u and v one after the other.
// The same on every member.
class Layout {
 public:
  Layout() = default;
  // kResourceExhausted for layers that no address space holds.
  static Result<Layout> Of(std::span<const plan::LayerSpec> layers, std::uint32_t places);

  std::uint64_t bytes() const { return bytes_; }
  // Page-aligned, from the beginning of the segment.
  std::uint64_t OffsetOf(LayerId layer, std::uint32_t place) const;
  std::uint64_t slot_bytes(LayerId layer) const { return slots_.at(layer.value()).bytes; }

 private:
  struct Slot {
    std::uint64_t offset = 0;  // of place 0
    std::uint64_t bytes = 0;
  };
  std::vector<Slot> slots_;  // by layer
  std::uint64_t bytes_ = 0;
};

// kInvalidArgument: so many rows do not fit a slot.
Status TooManyRows(const plan::LayerSpec& layer, std::uint64_t rows, std::uint64_t slot_bytes);

// Bytes of so many rows of u; of u and v together.
std::uint64_t FactorUBytes(const plan::LayerSpec& layer, std::uint64_t rows);
std::uint64_t FactorBytes(const plan::LayerSpec& layer, std::uint64_t rows);

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_LAYOUT_H_
