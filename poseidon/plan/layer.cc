// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/layer.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

#include "poseidon/base/listed.h"

namespace poseidon::plan {
namespace {

Status ValidateOne(const LayerSpec& layer) {
  const std::string who = "layer '" + layer.name + "'";
  if (layer.name.empty()) return InvalidArgument("a layer has no name");
  if (layer.name.size() > kMaxNameBytes || layer.shape.size() > kMaxNameBytes) {
    return InvalidArgument("the name or shape of layer '" + layer.name.substr(0, 60) +
                           "...' is longer than " + std::to_string(kMaxNameBytes) + " bytes");
  }
  if (!IsValid(layer.dtype)) {
    return InvalidArgument(who + " has the unknown dtype " +
                           std::to_string(static_cast<int>(layer.dtype)));
  }
  if (layer.elements == 0 || layer.elements > kMaxElements) {
    return InvalidArgument(who + " has " + std::to_string(layer.elements) +
                           " elements, expected 1 to " + std::to_string(kMaxElements));
  }
  if (!layer.factors) return OkStatus();
  // The default engine multiplies with a BLAS, which has sgemm and dgemm.
  if (layer.dtype != DType::kF32 && layer.dtype != DType::kF64) {
    return InvalidArgument(who + " has factors of " + std::string(NameOf(layer.dtype)) +
                           ", expected f32 or f64");
  }
  const FactorShape& shape = *layer.factors;
  // Bounded first, so that the product below cannot overflow.
  const bool in_bounds = shape.outputs >= 1 && shape.inputs >= 1 &&
                         shape.outputs <= layer.elements &&
                         shape.inputs <= layer.elements / shape.outputs;
  if (!in_bounds ||
      shape.outputs * shape.inputs + (shape.bias ? shape.outputs : 0) != layer.elements) {
    return InvalidArgument(who + " has " + std::to_string(layer.elements) +
                           " elements, which is not its factors' " + std::to_string(shape.outputs) +
                           " x " + std::to_string(shape.inputs) + (shape.bias ? " and bias" : ""));
  }
  if (shape.table && shape.bias) return InvalidArgument(who + " is a table with a bias, expected one without");
  if (shape.table && shape.by_device) return InvalidArgument(who + " is a table whose product a device makes, expected one without");
  return OkStatus();
}

}  // namespace

Status Validate(std::span<const LayerSpec> layers) {
  if (layers.size() > kMaxLayers) {
    return InvalidArgument(std::to_string(layers.size()) +
                           " layers are declared, expected at most " + std::to_string(kMaxLayers));
  }
  std::set<std::string_view> names;
  for (const LayerSpec& layer : layers) {
    POSEIDON_RETURN_IF_ERROR(ValidateOne(layer));
    if (!names.insert(layer.name).second) {
      return InvalidArgument("two layers are named '" + layer.name + "'");
    }
  }
  return OkStatus();
}

std::string NamesOf(std::span<const LayerSpec> layers) {
  std::string names;
  for (const LayerSpec& layer : layers) AddListed(layer.name, &names);
  return names;
}

std::vector<std::size_t> ForwardOrder(std::span<const LayerSpec> layers) {
  std::vector<std::size_t> order(layers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Several layers may have one position. A stable sort gives every member the same order of them.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return layers[a].forward_position < layers[b].forward_position;
  });
  return order;
}

}  // namespace poseidon::plan
