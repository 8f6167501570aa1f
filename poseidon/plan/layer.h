// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_LAYER_H_
#define POSEIDON_PLAN_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "poseidon/base/status.h"
#include "poseidon/tensor/dtype.h"

namespace poseidon::plan {

// Bounds on what a front end may declare and the wire may bring.
inline constexpr std::size_t kMaxLayers = 1u << 20;
inline constexpr std::size_t kMaxNameBytes = 1024;
inline constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;

// A fully connected layer: its flat gradient is the weight [outputs x inputs], row-major, and
// behind it, where there is one, the bias [outputs].
struct FactorShape {
  std::uint64_t outputs = 0;  // M
  std::uint64_t inputs = 0;   // N
  bool bias = false;

  // Of one sample's two factor rows.
  std::uint64_t elements_per_row() const { return outputs + inputs; }
  // Of the product that makes the weight gradient of `rows` factor rows; a multiplication and an
  // addition count two.
  double product_flops(std::uint64_t rows) const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(outputs) *
           static_cast<double>(inputs);
  }
  friend bool operator==(const FactorShape&, const FactorShape&) = default;
};

// One layer as declared: one contiguous flat gradient, weight and bias together.
struct LayerSpec {
  std::string name;        // unique in its model
  std::string shape = {};  // for people: "500x800+500"
  DType dtype = DType::kF32;
  std::uint64_t elements = 0;          // of the flat gradient, at least 1
  std::uint32_t forward_position = 0;  // 0 runs first in the forward pass
  // Present where the gradient is a product of factors.
  std::optional<FactorShape> factors = std::nullopt;

  std::uint64_t bytes() const { return elements * SizeOf(dtype); }
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

// OK when the layers are within the bounds above, their names are unique, and each one's elements
// and factors agree; else kInvalidArgument naming the layer.
Status Validate(std::span<const LayerSpec> layers);

// Their names, listed for people; empty of none.
std::string NamesOf(std::span<const LayerSpec> layers);

// The indices of `layers` in the order in which forward runs them.
std::vector<std::size_t> ForwardOrder(std::span<const LayerSpec> layers);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_LAYER_H_
