// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FSC_PART_H_
#define POSEIDON_FSC_PART_H_

#include <cstdint>
#include <vector>

#include "poseidon/plan/layer.h"
#include "poseidon/plan/units_range.h"

namespace poseidon::fsc {

// A stretch of a layer's flat gradient, in bytes.
struct Stretch {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

// The part of a layer [outputs x inputs] whose mean one shard's owner makes: the weight's rows of its units and,
// where the layer has a bias, their entries of it. As a layer of its own it is [units.count x inputs].
class LayerPart {
 public:
  LayerPart(const plan::LayerSpec& layer, const plan::UnitRange& units)
      : units_(units),
        shape_{.outputs = units.count, .inputs = layer.factors->inputs, .bias = layer.factors->bias},
        outputs_(layer.factors->outputs),
        size_(SizeOf(layer.dtype)) {}

  const plan::UnitRange& units() const { return units_; }
  const plan::FactorShape& shape() const { return shape_; }
  // In the flat gradient, which is the weight, row by row, and then the bias.
  Stretch weight() const { return {units_.first * shape_.inputs * size_, units_.count * shape_.inputs * size_}; }
  Stretch bias() const {
    if (!shape_.bias) return {};
    return {(outputs_ * shape_.inputs + units_.first) * size_, units_.count * size_};
  }
  // Weight and bias, without empty stretches.
  std::vector<Stretch> stretches() const {
    if (!shape_.bias) return {weight()};
    return {weight(), bias()};
  }

 private:
  plan::UnitRange units_;
  plan::FactorShape shape_;
  std::uint64_t outputs_;
  std::uint64_t size_;
};

}  // namespace poseidon::fsc

#endif  // POSEIDON_FSC_PART_H_
