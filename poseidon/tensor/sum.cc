// SPDX-License-Identifier: Apache-2.0
#include "poseidon/tensor/sum.h"

#include <algorithm>
#include <array>
#include <vector>

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
  std::vector<Summand> present;
  present.reserve(summands.size());
  for (const Summand& c : summands) {
    if (c.memory == nullptr) continue;
    present.push_back(c);
    total_weight += c.weight;
  }
  // The sums of hosts hold the weights already (docs/decisions/local-level.md).
  const bool weighted = total_weight != 0 && scaling != Scaling::kMeanOfSums;
  // Not multiplied by it: a mean over no samples may hold NaNs.
  if (total_weight != 0) {
    std::erase_if(present, [](const Summand& c) { return c.weight == 0; });
  }
  const T divisor = total_weight != 0 ? static_cast<T>(total_weight) : static_cast<T>(ranks);
  const bool scale = scaling != Scaling::kNone && divisor != T{1} && !std::is_integral_v<T>;
  const T factor = scale ? T{1} / divisor : T{1};
  if (present.size() == 1 && !weighted && !scale &&
      present[0].memory == reinterpret_cast<const std::byte*>(out)) {
    return;  // one worker: the sum is already where it belongs
  }

  const auto term = [&](std::size_t c, std::uint64_t begin) {
    return Term<T>{reinterpret_cast<const T*>(present[c].memory) + begin,
                   weighted ? static_cast<T>(present[c].weight) : T{1}};
  };
  const std::size_t count = present.size();
  if (count == 0) return static_cast<void>(std::fill_n(out, elements, T{0}));
  if (count == 1) return Scale(term(0, 0), factor, elements, out);
  if (count == 2) return AddPair(term(0, 0), term(1, 0), factor, elements, out);
  // Beside `out`, because `out` may be one of the summands still to come.
  alignas(64) std::array<T, kBlock> sum;
  const Term<T> so_far{sum.data(), T{1}};
  for (std::uint64_t begin = 0; begin < elements; begin += kBlock) {
    const std::uint64_t n = std::min(kBlock, elements - begin);
    AddPair(term(0, begin), term(1, begin), T{1}, n, sum.data());
    for (std::size_t c = 2; c + 1 < count; ++c) {
      AddPair(so_far, term(c, begin), T{1}, n, sum.data());
    }
    AddPair(so_far, term(count - 1, begin), factor, n, out + begin);
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
