// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/layers/registry.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "poseidon/base/listed.h"

namespace poseidon::caffe {

using LayerMaker = std::unique_ptr<Layer> (*)(const LayerParameter& param,
                                              const LayerContext& context);

#define POSEIDON_LAYER(type, maker) \
  std::unique_ptr<Layer> maker(const LayerParameter& param, const LayerContext& context);
#include "frontends/caffe/layers/layers.inc"
#undef POSEIDON_LAYER

namespace {

struct Entry {
  std::string_view type;
  LayerMaker make;
};

constexpr Entry kLayers[] = {
#define POSEIDON_LAYER(type, maker) {type, maker},
#include "frontends/caffe/layers/layers.inc"
#undef POSEIDON_LAYER
};

}  // namespace

Result<std::unique_ptr<Layer>> MakeLayer(const LayerParameter& param,
                                         const LayerContext& context) {
  for (const Entry& entry : kLayers) {
    if (entry.type == param.type()) return entry.make(param, context);
  }
  std::string known;
  for (const std::string& type : LayerTypes()) AddListed(type, &known);
  return InvalidArgument("unknown layer type '" + param.type() + "', known are " + known);
}

std::vector<std::string> LayerTypes() {
  std::vector<std::string> types;
  for (const Entry& entry : kLayers) types.emplace_back(entry.type);
  std::sort(types.begin(), types.end());
  return types;
}

}  // namespace poseidon::caffe
