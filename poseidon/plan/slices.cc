// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/slices.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "poseidon/base/check.h"

namespace poseidon::plan {
namespace {

std::uint16_t CountOf(std::uint64_t bytes, std::uint16_t shards) {
  return static_cast<std::uint16_t>(std::clamp<std::uint64_t>(bytes / kLeastSliceBytes, 1, shards));
}

// Slices of equally many units, of `unit` elements, at `owners`, which ascend.
std::vector<Slice> Cut(std::uint64_t elements, std::span<const std::uint16_t> owners, std::uint64_t unit = kSliceUnit) {
  // Whole units are dealt out evenly; the last unit may be a partial one. The owners that get one
  // unit more are the last ones, so that the partial unit is in a larger slice and no two slices
  // differ by more than one unit.
  const std::uint64_t units = (elements + unit - 1) / unit;
  const std::uint64_t least = units / owners.size();
  const std::uint64_t first_larger = owners.size() - units % owners.size();
  std::vector<Slice> slices;
  slices.reserve(owners.size());
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const std::uint64_t wanted = (least + (i >= first_larger ? 1 : 0)) * unit;
    const std::uint64_t count = std::min(wanted, elements - first);
    slices.push_back(Slice{.shard = owners[i], .first = first, .count = count});
    first += count;
  }
  return slices;
}

// `first` and those that follow it, the first shard behind the last; ascending.
std::vector<std::uint16_t> OwnersFrom(std::uint64_t first, std::uint16_t count, std::uint16_t shards) {
  std::vector<std::uint16_t> owners(count);
  for (std::uint16_t i = 0; i < count; ++i) owners[i] = static_cast<std::uint16_t>((first + i) % shards);
  std::ranges::sort(owners);
  return owners;
}

std::vector<std::vector<Slice>> DealWhole(std::span<const LayerSpec> layers, std::uint16_t shards) {
  std::vector<std::vector<Slice>> slices(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].elements == 0) continue;
    slices[i] = {{.shard = static_cast<std::uint16_t>(i % shards), .count = layers[i].elements}};
  }
  return slices;
}

std::vector<std::vector<Slice>> DealPairs(std::span<const LayerSpec> layers, std::uint16_t shards) {
  std::vector<std::vector<Slice>> slices(layers.size());
  std::uint64_t dealt = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].elements == 0) continue;
    const std::uint64_t pair = kPairBytes / SizeOf(layers[i].dtype);
    const std::uint64_t pairs = (layers[i].elements + pair - 1) / pair;
    const auto count = static_cast<std::uint16_t>(std::min<std::uint64_t>(pairs, shards));
    slices[i] = Cut(layers[i].elements, OwnersFrom(dealt % shards, count, shards), pair);
    dealt += pairs;
  }
  return slices;
}

}  // namespace

std::vector<Slice> MakeSlices(std::uint64_t elements, DType dtype, std::uint16_t shards, std::uint16_t first_owner) {
  POSEIDON_CHECK(shards > 0 && first_owner < shards, "slices need a shard to own them");
  if (elements == 0) return {};
  return Cut(elements, OwnersFrom(first_owner, CountOf(elements * SizeOf(dtype), shards), shards));
}

std::vector<std::vector<Slice>> AssignSlices(std::span<const LayerSpec> layers, std::uint16_t shards, Placement placement) {
  POSEIDON_CHECK(shards > 0, "slices need a shard to own them");
  if (placement == Placement::kWhole) return DealWhole(layers, shards);
  if (placement == Placement::kPairs) return DealPairs(layers, shards);
  std::vector<std::vector<Slice>> slices(layers.size());
  std::vector<std::size_t> largest_first;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].elements > 0) largest_first.push_back(i);
  }
  std::ranges::stable_sort(largest_first, [&](std::size_t a, std::size_t b) { return layers[a].bytes() > layers[b].bytes(); });
  std::vector<std::uint64_t> load(shards, 0);
  std::vector<std::uint16_t> least_first(shards);
  for (const std::size_t i : largest_first) {
    std::iota(least_first.begin(), least_first.end(), std::uint16_t{0});
    const std::uint16_t count = CountOf(layers[i].bytes(), shards);
    // Whoever has the least; where every shard has a slice there is nothing to choose.
    if (count < shards) std::ranges::stable_sort(least_first, {}, [&](std::uint16_t shard) { return load[shard]; });
    const auto owners = std::span(least_first).first(count);
    std::ranges::sort(owners);
    slices[i] = Cut(layers[i].elements, owners);
    for (const Slice& slice : slices[i]) load[slice.shard] += slice.count * SizeOf(layers[i].dtype);
  }
  return slices;
}

}  // namespace poseidon::plan
