// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/replay/scaled_model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace poseidon::replay {
namespace {

std::uint64_t Divided(std::uint64_t value, double by) {
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(
                                        static_cast<double>(value) / by)));
}

}  // namespace

std::vector<plan::LayerSpec> ScaledModel::specs() const {
  std::vector<plan::LayerSpec> specs;
  for (const ScaledLayer& layer : layers) specs.push_back(layer.spec);
  return specs;
}

std::vector<plan::LayerMeasurement> ScaledModel::measurements(std::uint32_t workers) const {
  std::vector<plan::LayerMeasurement> measured;
  for (const ScaledLayer& layer : layers) {
    plan::LayerMeasurement one{layer.forward_seconds, layer.backward_seconds};
    if (layer.spec.factors) one.rows.assign(workers, layer.rows);
    measured.push_back(std::move(one));
  }
  return measured;
}

double ScaledModel::step_seconds() const {
  double sum = 0;
  for (const ScaledLayer& layer : layers) sum += layer.forward_seconds + layer.backward_seconds;
  return sum;
}

ScaledModel Scale(const profile::Profile& profile, double scale) {
  const double root = std::sqrt(scale);
  ScaledModel model;
  model.product_flops = profile.product_flops / std::pow(scale, 1.5);
  for (const profile::Layer& layer : profile.layers) {
    ScaledLayer scaled{layer.spec, layer.forward_seconds, layer.backward_seconds, 0, 0};
    if (layer.spec.factors) {
      const plan::FactorShape whole = *layer.spec.factors;
      const plan::FactorShape small{Divided(whole.outputs, root), Divided(whole.inputs, root),
                                    whole.bias};
      scaled.spec.factors = small;
      scaled.spec.elements = small.outputs * small.inputs + (small.bias ? small.outputs : 0);
      scaled.rows = static_cast<std::uint32_t>(Divided(layer.rows, root));
      if (profile.product_flops > 0) {
        scaled.product_seconds = whole.product_flops(layer.rows) / profile.product_flops;
      }
    } else {
      scaled.spec.elements = Divided(layer.spec.elements, scale);
    }
    model.layers.push_back(std::move(scaled));
  }
  return model;
}

ScaledModel CutIntoPairs(const ScaledModel& model, std::uint64_t pair_elements,
                         const std::vector<bool>& whole) {
  ScaledModel cut;
  cut.product_flops = model.product_flops;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const ScaledLayer& layer = model.layers[i];
    const std::uint64_t pairs = (layer.spec.elements + pair_elements - 1) / pair_elements;
    for (std::uint64_t n = 0; n < (whole[i] ? 1 : pairs); ++n) {
      ScaledLayer pair = layer;
      pair.spec.forward_position = static_cast<std::uint32_t>(cut.layers.size());
      if (!whole[i]) {
        pair.spec.name += "/" + std::to_string(n);
        pair.spec.elements = std::min(pair_elements, layer.spec.elements - n * pair_elements);
        pair.spec.factors.reset();
        pair.rows = 0;
        pair.product_seconds = 0;
        if (n > 0) pair.forward_seconds = 0;
        if (n + 1 < pairs) pair.backward_seconds = 0;
      }
      cut.layers.push_back(std::move(pair));
    }
  }
  return cut;
}

}  // namespace poseidon::replay
