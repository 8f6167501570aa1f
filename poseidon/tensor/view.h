// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TENSOR_VIEW_H_
#define POSEIDON_TENSOR_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "poseidon/base/bytes.h"
#include "poseidon/tensor/dtype.h"

namespace poseidon {

// `elements` numbers of one dtype, contiguous, in memory that belongs to someone else (host memory
// unless a device says otherwise). Copying a view copies no number.
struct TensorView {
  std::byte* memory = nullptr;
  std::uint64_t elements = 0;
  DType dtype = DType::kF32;

  std::size_t bytes() const { return elements * SizeOf(dtype); }
  MutableBytes span() const { return {memory, bytes()}; }
  // The part [first, first + count), in elements. Pre: it is inside.
  TensorView Slice(std::uint64_t first, std::uint64_t count) const {
    return {memory + first * SizeOf(dtype), count, dtype};
  }

  friend bool operator==(const TensorView&, const TensorView&) = default;  // the same memory, not the same numbers
};

inline TensorView ViewOf(std::span<float> numbers) {
  return {reinterpret_cast<std::byte*>(numbers.data()), numbers.size(), DType::kF32};
}
inline TensorView ViewOf(std::span<double> numbers) {
  return {reinterpret_cast<std::byte*>(numbers.data()), numbers.size(), DType::kF64};
}
inline TensorView ViewOf(std::span<std::int64_t> numbers) {
  return {reinterpret_cast<std::byte*>(numbers.data()), numbers.size(), DType::kI64};
}

// A factor layer's gradient as an outer product: dW [outputs x inputs] = u^T v, with `rows` samples.
// u is [rows x outputs] (output errors), v is [rows x inputs] (inputs), both row-major, contiguous.
// Of a table each row of u has a single 1 and is that one's index, an int64: row u[i] of dW gets v[i].
// rows == 0 is legal. Sufficient factors: Xie et al., UAI 2016 (arXiv 1511.08486).
struct Factors {
  const std::byte* u = nullptr;
  const std::byte* v = nullptr;
  std::uint32_t rows = 0;

  friend bool operator==(const Factors&, const Factors&) = default;  // the same memory
};

}  // namespace poseidon

#endif  // POSEIDON_TENSOR_VIEW_H_
