// SPDX-License-Identifier: Apache-2.0
#include "poseidon/local/layout.h"

#include <algorithm>

#include "poseidon/base/bytes.h"
#include "poseidon/local/segment.h"

namespace poseidon::local {

std::uint64_t FactorUBytes(const plan::LayerSpec& layer, std::uint64_t rows) {
  return rows * layer.factors->u_bytes_per_row(layer.dtype);
}
std::uint64_t FactorBytes(const plan::LayerSpec& layer, std::uint64_t rows) {
  return rows * layer.factors->bytes_per_row(layer.dtype);
}

Status TooManyRows(const plan::LayerSpec& layer, std::uint64_t rows, std::uint64_t slot_bytes) {
  return InvalidArgument("layer '" + layer.name + "' brings " + std::to_string(rows) + " rows, at most " +
                         std::to_string(slot_bytes / FactorBytes(layer, 1)) +
                         " fit the shared memory of its host: train with --levels=flat");
}

Result<Layout> Layout::Of(std::span<const plan::LayerSpec> layers, std::uint32_t places) {
  Layout layout;
  for (const plan::LayerSpec& layer : layers) {
    // At most 2^40 elements of 8 bytes (plan::Validate), and 4,096 rows of them.
    std::uint64_t bytes = layer.is_table() ? 1 : layer.bytes();  // a table's rows pass no segment, which is never empty
    if (layer.factors && !layer.is_table()) bytes = std::max(bytes, FactorBytes(layer, kLeastRows));
    bytes = WholePages(bytes);
    layout.slots_.push_back({layout.bytes_, bytes});
    // A quotient, because bytes * slots may wrap.
    const std::uint64_t slots = std::uint64_t{places} + 1;
    if (bytes > (kMostBytes - layout.bytes_) / slots) {
      return ResourceExhausted("the shared memory of " + std::to_string(places) +
                               " workers cannot hold layer '" + layer.name + "'");
    }
    layout.bytes_ += bytes * slots;
  }
  return layout;
}

std::uint64_t Layout::OffsetOf(LayerId layer, std::uint32_t place) const {
  const Slot& slot = slots_.at(layer.value());
  return slot.offset + slot.bytes * place;
}

}  // namespace poseidon::local
