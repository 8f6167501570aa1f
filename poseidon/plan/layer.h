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

// A layer whose gradient [outputs x inputs], row-major, is a product u^T v of factors that every worker sends to every
// other, a row of each at a time:
// - a fully connected layer; the gradient of its bias [outputs], where it has one, follows that of its weight;
// - a table of `outputs` entries (an embedding), where each row of u has a single 1 and goes as that one's index. Its
//   product is never made: what all workers bring is handed out as it is, row by row.
struct FactorShape {
  std::uint64_t outputs = 0;  // M
  std::uint64_t inputs = 0;   // N
  bool bias = false;
  bool table = false;
  // Each worker's program makes the product on its device: where factors go to every worker, what all of them bring is handed
  // out as a table's rows are. Of the layers agreed on: some worker's program does. Not of a table.
  bool by_device = false;

  // Of one sample's two factor rows.
  std::uint64_t elements_per_row() const { return outputs + inputs; }
  // Of one row of a factor, as it is sent.
  std::uint64_t u_bytes_per_row(DType dtype) const { return table ? sizeof(std::int64_t) : outputs * SizeOf(dtype); }
  std::uint64_t v_bytes_per_row(DType dtype) const { return inputs * SizeOf(dtype); }
  std::uint64_t bytes_per_row(DType dtype) const { return u_bytes_per_row(dtype) + v_bytes_per_row(dtype); }
  // Of a table: whether a row may be of this index.
  bool has_entry(std::int64_t index) const { return index >= 0 && static_cast<std::uint64_t>(index) < outputs; }
  // Of the product that makes the weight gradient of `rows` factor rows; a multiplication and an
  // addition count two.
  double product_flops(std::uint64_t rows) const {
    if (table) return 0;
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
  // Present where the gradient is a product of factors, or rows of a table.
  std::optional<FactorShape> factors = std::nullopt;

  std::uint64_t bytes() const { return elements * SizeOf(dtype); }
  bool is_table() const { return factors && factors->table; }
  bool is_multiplied_by_device() const { return factors && factors->by_device; }
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
