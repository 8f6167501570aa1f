// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/slices.h"

#include <algorithm>
#include <cstddef>

#include "poseidon/base/check.h"

namespace poseidon::plan {

std::vector<Slice> MakeSlices(std::uint64_t elements, DType dtype, std::uint16_t shards,
                              std::uint16_t small_owner) {
  POSEIDON_CHECK(shards > 0 && small_owner < shards, "slices need a shard to own them");
  if (elements == 0) return {};
  if (shards == 1 || elements * SizeOf(dtype) < kSmallTensorBytes) {
    return {Slice{.shard = small_owner, .first = 0, .count = elements}};
  }
  // Whole units are dealt out evenly; the last unit may be a partial one. The shards that get one
  // unit more are the last ones, so that the partial unit is in a larger slice and no two slices
  // differ by more than one unit.
  const std::uint64_t units = (elements + kSliceUnit - 1) / kSliceUnit;
  const std::uint64_t least = units / shards;
  const std::uint64_t first_larger = shards - units % shards;
  std::vector<Slice> slices;
  slices.reserve(std::min<std::uint64_t>(shards, units));
  std::uint64_t first = 0;
  for (std::uint16_t shard = 0; shard < shards; ++shard) {
    const std::uint64_t wanted = (least + (shard >= first_larger ? 1 : 0)) * kSliceUnit;
    const std::uint64_t count = std::min(wanted, elements - first);
    if (count > 0) slices.push_back(Slice{.shard = shard, .first = first, .count = count});
    first += count;
  }
  return slices;
}

std::vector<std::vector<Slice>> AssignSlices(std::span<const LayerSpec> layers,
                                             std::uint16_t shards, Placement placement) {
  POSEIDON_CHECK(shards > 0, "slices need a shard to own them");
  std::vector<std::vector<Slice>> slices(layers.size());
  if (placement == Placement::kWhole) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (layers[i].elements == 0) continue;
      slices[i] = {{.shard = static_cast<std::uint16_t>(i % shards), .count = layers[i].elements}};
    }
    return slices;
  }
  std::vector<std::uint64_t> load(shards, 0);
  std::vector<std::size_t> small;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].bytes() < kSmallTensorBytes) {
      small.push_back(i);
      continue;
    }
    slices[i] = MakeSlices(layers[i].elements, layers[i].dtype, shards, 0);
    for (const Slice& slice : slices[i]) {
      load[slice.shard] += slice.count * SizeOf(layers[i].dtype);
    }
  }
  std::stable_sort(small.begin(), small.end(), [&](std::size_t a, std::size_t b) {
    return layers[a].bytes() > layers[b].bytes();
  });
  for (const std::size_t i : small) {
    const auto owner =
        static_cast<std::uint16_t>(std::min_element(load.begin(), load.end()) - load.begin());
    load[owner] += layers[i].bytes();
    slices[i] = MakeSlices(layers[i].elements, layers[i].dtype, shards, owner);
  }
  return slices;
}

}  // namespace poseidon::plan
