// SPDX-License-Identifier: Apache-2.0
#include "poseidon/tensor/sum.h"

#include <algorithm>
#include <array>

#include "poseidon/base/check.h"

namespace poseidon {
namespace {

// Elements handled per block, where the sum of more than two summands stays in the first-level
// cache until it is whole: memory is read once per contribution and written once.
constexpr std::uint64_t kBlock = 2048;

template <typename T>
struct Term {
  const T* from;
  T weight;
};

// out = (a + b) scale, element by element; `out` may be where `a` or `b` is. A weight or scale of 1
// changes no number.
// Compiled with -ffp-contract=off (cmake/Poseidon.cmake): where a multiplication and an addition are fused in one loop
// or on one processor only, the bits differ.
template <typename T>
void AddPair(const Term<T>& a, const Term<T>& b, T scale, std::uint64_t n, T* out) {
#pragma omp simd
  for (std::uint64_t i = 0; i < n; ++i) {
    out[i] = (a.from[i] * a.weight + b.from[i] * b.weight) * scale;
  }
}

template <typename T>
void Scale(const Term<T>& a, T scale, std::uint64_t n, T* out) {
#pragma omp simd
  for (std::uint64_t i = 0; i < n; ++i) out[i] = a.from[i] * a.weight * scale;
}

template <typename T>
void Sum(std::span<const Summand> summands, std::size_t ranks, std::uint64_t elements,
         Scaling scaling, T* out) {
  std::uint64_t total_weight = 0;
  for (const Summand& c : summands) total_weight += c.memory == nullptr ? 0 : c.weight;
  // The sums of hosts hold the weights already (docs/decisions/local-level.md).
  const bool weighted = total_weight != 0 && scaling != Scaling::kMeanOfSums;
  const T divisor = total_weight != 0 ? static_cast<T>(total_weight) : static_cast<T>(ranks);
  const bool scale = scaling != Scaling::kNone && divisor != T{1} && !std::is_integral_v<T>;
  const T factor = scale ? T{1} / divisor : T{1};

  // The first summand from `c` on that counts. One without weight is not multiplied by it: a mean over no samples may hold
  // NaNs.
  const std::size_t end = summands.size();
  const auto present_from = [&](std::size_t c) {
    const auto counts = [&](const Summand& one) { return one.memory != nullptr && (total_weight == 0 || one.weight != 0); };
    while (c < end && !counts(summands[c])) ++c;
    return c;
  };
  const auto term = [&](std::size_t c, std::uint64_t begin) {
    return Term<T>{reinterpret_cast<const T*>(summands[c].memory) + begin,
                   weighted ? static_cast<T>(summands[c].weight) : T{1}};
  };
  const std::size_t first = present_from(0);
  if (first == end) return static_cast<void>(std::fill_n(out, elements, T{0}));
  const std::size_t second = present_from(first + 1);
  if (second == end) {
    // One worker: the sum may be where it belongs already.
    const bool there = !weighted && !scale && summands[first].memory == reinterpret_cast<const std::byte*>(out);
    return there ? void() : Scale(term(first, 0), factor, elements, out);
  }
  const std::size_t third = present_from(second + 1);
  if (third == end) return AddPair(term(first, 0), term(second, 0), factor, elements, out);
  // Beside `out`, because `out` may be one of the summands still to come.
  alignas(64) std::array<T, kBlock> sum;
  const Term<T> so_far{sum.data(), T{1}};
  for (std::uint64_t begin = 0; begin < elements; begin += kBlock) {
    const std::uint64_t n = std::min(kBlock, elements - begin);
    AddPair(term(first, begin), term(second, begin), T{1}, n, sum.data());
    for (std::size_t c = third; c < end;) {
      const std::size_t next = present_from(c + 1);
      const bool last = next == end;
      AddPair(so_far, term(c, begin), last ? factor : T{1}, n, last ? out + begin : sum.data());
      c = next;
    }
  }
}

}  // namespace

void SumInRankOrder(std::span<const Summand> summands, std::size_t ranks,
                    std::uint64_t elements, DType dtype, Scaling scaling, std::byte* out) {
  switch (dtype) {
    case DType::kF32:
      return Sum(summands, ranks, elements, scaling, reinterpret_cast<float*>(out));
    case DType::kF64:
      return Sum(summands, ranks, elements, scaling, reinterpret_cast<double*>(out));
    case DType::kI64:
      return Sum(summands, ranks, elements, scaling, reinterpret_cast<std::int64_t*>(out));
    case DType::kF16:
    case DType::kBF16: break;
  }
  POSEIDON_CHECK(false, "sums exist for f32, f64 and i64");
}

}  // namespace poseidon
