// SPDX-License-Identifier: Apache-2.0
#include "poseidon/tensor/sum.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "poseidon/base/check.h"

namespace poseidon {
namespace {

// Elements handled per block: each block of `out` stays in the first-level cache while every
// contribution is added to it, so memory is read once per contribution and written once.
constexpr std::uint64_t kBlock = 2048;

template <typename T>
void AddBlock(const T* __restrict__ from, T weight, bool weighted, std::uint64_t n,
              T* __restrict__ sum) {
  if (weighted) {
    for (std::uint64_t i = 0; i < n; ++i) sum[i] += from[i] * weight;
  } else {
    for (std::uint64_t i = 0; i < n; ++i) sum[i] += from[i];
  }
}

template <typename T>
void Sum(std::span<const Contribution> contributions, std::size_t ranks, std::uint64_t elements,
         Scaling scaling, T* out) {
  std::uint64_t total_weight = 0;
  std::vector<Contribution> present;
  present.reserve(contributions.size());
  for (const Contribution& c : contributions) {
    if (c.memory == nullptr) continue;
    present.push_back(c);
    total_weight += c.weight;
  }
  const bool sums = scaling == Scaling::kMeanOfSums;
  const bool weighted = total_weight != 0 && !sums;
  if (sums && total_weight != 0) {
    std::erase_if(present, [](const Contribution& c) { return c.weight == 0; });
  }
  const T divisor = total_weight != 0 ? static_cast<T>(total_weight) : static_cast<T>(ranks);
  const bool scale = scaling != Scaling::kNone && divisor != T{1} && !std::is_integral_v<T>;
  const T factor = scale ? T{1} / divisor : T{1};
  if (present.size() == 1 && !weighted && !scale &&
      present[0].memory == reinterpret_cast<const std::byte*>(out)) {
    return;  // one worker: the sum is already where it belongs
  }

  // The block is summed beside `out`, because `out` may be one of the contributions.
  alignas(64) std::array<T, kBlock> sum;
  for (std::uint64_t begin = 0; begin < elements; begin += kBlock) {
    const std::uint64_t n = std::min(kBlock, elements - begin);
    if (present.empty()) {
      std::fill_n(out + begin, n, T{0});
      continue;
    }
    const T* first = reinterpret_cast<const T*>(present[0].memory) + begin;
    if (weighted) {
      const T weight = static_cast<T>(present[0].weight);
      for (std::uint64_t i = 0; i < n; ++i) sum[i] = first[i] * weight;
    } else {
      std::memcpy(sum.data(), first, n * sizeof(T));
    }
    for (std::size_t c = 1; c < present.size(); ++c) {
      AddBlock(reinterpret_cast<const T*>(present[c].memory) + begin,
               static_cast<T>(present[c].weight), weighted, n, sum.data());
    }
    if (scale) {
      for (std::uint64_t i = 0; i < n; ++i) out[begin + i] = sum[i] * factor;
    } else {
      std::memcpy(out + begin, sum.data(), n * sizeof(T));
    }
  }
}

}  // namespace

void SumInRankOrder(std::span<const Contribution> contributions, std::size_t ranks,
                    std::uint64_t elements, DType dtype, Scaling scaling, std::byte* out) {
  switch (dtype) {
    case DType::kF32:
      return Sum(contributions, ranks, elements, scaling, reinterpret_cast<float*>(out));
    case DType::kF64:
      return Sum(contributions, ranks, elements, scaling, reinterpret_cast<double*>(out));
    case DType::kI64:
      return Sum(contributions, ranks, elements, scaling, reinterpret_cast<std::int64_t*>(out));
    case DType::kF16:
    case DType::kBF16: break;
  }
  POSEIDON_CHECK(false, "sums exist for f32, f64 and i64");
}

}  // namespace poseidon
