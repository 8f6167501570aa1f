// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TENSOR_DTYPE_H_
#define POSEIDON_TENSOR_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace poseidon {

// The numbers are part of the wire protocol. Sums exist for f32, f64 and i64 (tensor/sum.h).
enum class DType : std::uint8_t { kF64 = 1, kF32 = 2, kF16 = 3, kBF16 = 4, kI64 = 5 };

constexpr bool IsValid(DType dtype) {
  return dtype >= DType::kF64 && dtype <= DType::kI64;
}
constexpr std::size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32: return 4;
    case DType::kF16:
    case DType::kBF16: return 2;
  }
  return 0;
}
constexpr std::string_view NameOf(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "f64";
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kI64: return "i64";
  }
  return "?";
}

}  // namespace poseidon

#endif  // POSEIDON_TENSOR_DTYPE_H_
