// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/joining.h"

#include <map>

namespace poseidon::plan {

namespace {

bool StaysAlone(const LayerSpec& layer, const std::set<std::string, std::less<>>& apart, std::uint64_t most_bytes) {
  if (apart.contains(layer.name) || layer.bytes() >= most_bytes) return true;
  if (!layer.factors) return false;
  return layer.factors->table ||
         layer.factors->outputs * layer.factors->inputs * SizeOf(layer.dtype) > kMostJoinedProductBytes;
}

}  // namespace

std::vector<std::size_t> JoinSmall(std::span<const LayerSpec> layers, const std::set<std::string, std::less<>>& apart,
                                   std::uint64_t most_bytes) {
  struct Message {
    std::size_t first = 0;
    std::uint64_t bytes = 0;
  };
  // A joined layer is one flat gradient and has one dtype (LayerSpec), so each dtype fills messages of its own.
  std::map<DType, Message> filling;  // the message that the next small layer joins
  std::vector<std::size_t> first_of(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerSpec& layer = layers[i];
    first_of[i] = i;
    if (StaysAlone(layer, apart, most_bytes)) continue;
    const auto found = filling.find(layer.dtype);
    if (found != filling.end() && found->second.bytes + layer.bytes() <= most_bytes) {
      found->second.bytes += layer.bytes();
      first_of[i] = found->second.first;
    } else {
      filling[layer.dtype] = {i, layer.bytes()};
    }
  }
  return first_of;
}

}  // namespace poseidon::plan
