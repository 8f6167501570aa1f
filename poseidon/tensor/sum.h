// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TENSOR_SUM_H_
#define POSEIDON_TENSOR_SUM_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "poseidon/tensor/dtype.h"

namespace poseidon {

// What one rank adds to a sum. A null `memory` is that of an absent rank: it adds nothing, not even
// a zero. `weight` 0 means "unweighted".
struct Summand {
  const std::byte* memory = nullptr;
  std::uint32_t weight = 0;
};

constexpr bool HasSum(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kI64;
}

// The scale of a finished sum: 1 over the divisor, in the dtype's own arithmetic. A mean
// over P workers divides by P; with weights by their sum. i64 sums are never scaled.
// kMeanOfSums: the summands are weighted sums already, made with kNone, and their weights the sums
// of what is in them: they count in the divisor only.
enum class Scaling : std::uint8_t { kNone = 0, kMean = 1, kMeanOfSums = 2 };

// Writes out[i] = scale * (((c0[i] + c1[i]) + c2[i]) + ...), in the order of `summands` (rank
// order), for `elements` numbers of `dtype`. Weighted when any weight is not 0: each number is
// multiplied by its summand's weight first, and the mean divides by the sum of the weights of
// the summands that are present; unweighted, it divides by `ranks`. A weight of 0 among others
// adds nothing.
// `out` may be the memory of one of the summands; other overlaps are not allowed.
// With every summand absent the result is zero. The same inputs give the same bits for any
// split of the element range into calls.
// Pre: HasSum(dtype). Thread: any; touches only its arguments.
void SumInRankOrder(std::span<const Summand> summands, std::size_t ranks,
                    std::uint64_t elements, DType dtype, Scaling scaling, std::byte* out);

}  // namespace poseidon

#endif  // POSEIDON_TENSOR_SUM_H_
