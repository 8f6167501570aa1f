// SPDX-License-Identifier: Apache-2.0
#include "poseidon/factors/zero_compression.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "poseidon/base/check.h"

namespace poseidon::factors {
namespace {

static_assert(std::endian::native == std::endian::little, "bitmaps are copied as numbers");

// A group of words that are all set.
constexpr std::size_t kMostGroupBytes = kBitmapBytes + kGroupBytes;

std::size_t GroupBytes(std::uint64_t bitmap) {
  return kBitmapBytes + kWordBytes * static_cast<std::size_t>(std::popcount(bitmap));
}

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void Store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// ---- one group of `words` words: at most kGroupWords

// Writes bitmap and words to `to`, which has room for kMostGroupBytes, and returns how many bytes count.
std::size_t CompressPortably(const std::byte* from, std::size_t words, std::byte* to) {
  std::uint64_t bitmap = 0;
  std::byte* at = to + kBitmapBytes;
  for (std::size_t i = 0; i < words; ++i) {
    const auto word = Load<std::uint32_t>(from + i * kWordBytes);
    const bool set = word != 0;
    Store(at, word);  // and written over by the next one where it is zero: no branch that is guessed wrong
    at += set ? kWordBytes : 0;
    bitmap |= std::uint64_t{set} << i;
  }
  Store(to, bitmap);
  return static_cast<std::size_t>(at - to);
}

// Writes `words` words to `to`. `from` holds those of the bitmap, and Expander::kReach bytes more may be read.
void ExpandPortably(std::uint64_t bitmap, const std::byte* from, std::size_t words, std::byte* to) {
  for (std::size_t i = 0; i < words; ++i, bitmap >>= 1) {
    const std::uint32_t set = bitmap & 1;
    Store(to + i * kWordBytes, Load<std::uint32_t>(from) & (0 - set));
    from += set * kWordBytes;
  }
}

#if defined(__x86_64__)

// For each set of 8 words, as a byte: which word goes where. Packed, word k is the k-th of those set; spread, -1 names
// a word that is zero.
struct Lanes {
  alignas(64) std::array<std::array<std::int8_t, 8>, 256> packed{};
  alignas(64) std::array<std::array<std::int8_t, 8>, 256> spread{};
};
constexpr Lanes MakeLanes() {
  Lanes lanes;
  for (std::size_t set = 0; set < 256; ++set) {
    std::int8_t count = 0;
    for (std::int8_t lane = 0; lane < 8; ++lane) {
      const auto at = static_cast<std::size_t>(lane);
      if ((set >> at & 1) == 0) {
        lanes.spread[set][at] = -1;
        continue;
      }
      lanes.packed[set][static_cast<std::size_t>(count)] = lane;
      lanes.spread[set][at] = count++;
    }
  }
  return lanes;
}
constexpr Lanes kLanes = MakeLanes();

__attribute__((target("avx2"))) inline __m256i LanesOf(const std::array<std::int8_t, 8>& lanes) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(lanes.data())));
}

__attribute__((target("avx2,popcnt"))) std::size_t CompressByAvx2(const std::byte* from, std::size_t words,
                                                                  std::byte* to) {
  if (words != kGroupWords) return CompressPortably(from, words, to);
  std::byte* at = to + kBitmapBytes;
  for (std::size_t i = 0; i < kBitmapBytes; ++i) {
    const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + i);
    const __m256i zero = _mm256_cmpeq_epi32(eight, _mm256_setzero_si256());
    const unsigned set = ~static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(zero))) & 0xff;
    to[i] = static_cast<std::byte>(set);
    // All eight lanes are written. Those that do not count are written over, and the last end within the group's room:
    // before eight words at most 8 i words have been written.
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at),
                        _mm256_permutevar8x32_epi32(eight, LanesOf(kLanes.packed[set])));
    at += kWordBytes * static_cast<std::size_t>(__builtin_popcount(set));
  }
  return static_cast<std::size_t>(at - to);
}

__attribute__((target("avx2,popcnt"))) void ExpandByAvx2(std::uint64_t bitmap, const std::byte* from, std::size_t words,
                                                         std::byte* to) {
  if (words != kGroupWords) return ExpandPortably(bitmap, from, words, to);
  for (std::size_t i = 0; i < kBitmapBytes; ++i, bitmap >>= 8) {
    const std::size_t set = bitmap & 0xff;
    const __m256i lanes = LanesOf(kLanes.spread[set]);
    const __m256i packed = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i spread = _mm256_permutevar8x32_epi32(packed, lanes);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + i, _mm256_andnot_si256(_mm256_srai_epi32(lanes, 31), spread));
    from += kWordBytes * static_cast<std::size_t>(__builtin_popcountll(set));
  }
}

#endif

struct Steps {
  std::size_t (*compress)(const std::byte* from, std::size_t words, std::byte* to);
  void (*expand)(std::uint64_t bitmap, const std::byte* from, std::size_t words, std::byte* to);
};

Steps StepsOf([[maybe_unused]] CompressionPath path) {
#if defined(__x86_64__)
  if (path == CompressionPath::kAvx2) return {CompressByAvx2, ExpandByAvx2};
#endif
  return {CompressPortably, ExpandPortably};
}

}  // namespace

std::span<const CompressionPath> CompressionPaths() {
  static constexpr CompressionPath kAll[] = {CompressionPath::kPortable, CompressionPath::kAvx2};
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
  if (avx2) return kAll;
#endif
  return std::span(kAll).first(1);
}

std::uint64_t EstimateCompressedBytes(ConstBytes bytes) {
  POSEIDON_CHECK(bytes.size() % kWordBytes == 0, "words are compressed");
  // Lines of the cache, of which each costs one access to memory.
  constexpr std::size_t kLineBytes = 64;
  constexpr std::size_t kLines = 64;
  const std::size_t lines = bytes.size() / kLineBytes;
  const std::size_t looked_at = std::min(kLines, lines);
  if (looked_at == 0) return MostCompressedBytes(bytes.size());
  // Multiples of the golden ratio, without their whole parts, are spread evenly, but at no fixed distance: that would
  // be the same few columns of every row.
  constexpr double kGoldenRatio = 0.6180339887498949;
  std::size_t set = 0;
  for (std::size_t i = 0; i < looked_at; ++i) {
    const double share = kGoldenRatio * static_cast<double>(i);
    const std::size_t line =
        lines == looked_at ? i : static_cast<std::size_t>((share - std::floor(share)) * static_cast<double>(lines));
    const std::byte* const from = bytes.data() + line * kLineBytes;
    for (std::size_t at = 0; at < kLineBytes; at += kWordBytes) set += std::size_t{Load<std::uint32_t>(from + at) != 0};
  }
  const double nonzero = static_cast<double>(set) / static_cast<double>(looked_at * kLineBytes / kWordBytes);
  return LeastCompressedBytes(bytes.size()) + static_cast<std::uint64_t>(nonzero * static_cast<double>(bytes.size()));
}

std::optional<std::uint64_t> Compress(ConstBytes bytes, MutableBytes out, CompressionPath path) {
  POSEIDON_CHECK(bytes.size() % kWordBytes == 0, "words are compressed");
  const Steps steps = StepsOf(path);
  std::size_t at = 0;
  for (std::size_t from = 0; from < bytes.size(); from += kGroupBytes) {
    const std::size_t words = std::min(kGroupBytes, bytes.size() - from) / kWordBytes;
    if (out.size() - at >= kMostGroupBytes) {
      at += steps.compress(bytes.data() + from, words, out.data() + at);
      continue;
    }
    // A step may write as many bytes as a group has at most, also where fewer count.
    std::array<std::byte, kMostGroupBytes> group;
    const std::size_t count = steps.compress(bytes.data() + from, words, group.data());
    if (count > out.size() - at) return std::nullopt;
    std::memcpy(out.data() + at, group.data(), count);
    at += count;
  }
  return at;
}

Expander::Expander(MutableBytes into, std::uint64_t compressed, CompressionPath path)
    : into_(into), compressed_(compressed), path_(path) {
  POSEIDON_CHECK(into.size() % kWordBytes == 0, "words are expanded");
}

// Returns the bytes that the group at `from` has, or 0 where it is none. Pre: behind its words kReach bytes may be
// read.
std::size_t Expander::TakeGroup(const std::byte* from) {
  const auto bitmap = Load<std::uint64_t>(from);
  const std::size_t words = std::min<std::uint64_t>(kGroupBytes, into_.size() - expanded_) / kWordBytes;
  if (words == 0 || (words < kGroupWords && bitmap >> words != 0)) return 0;
  StepsOf(path_).expand(bitmap, from + kBitmapBytes, words, into_.data() + expanded_);
  expanded_ += words * kWordBytes;
  return GroupBytes(bitmap);
}

// Copies from `piece` until so many bytes of a group are held; returns whether they are.
bool Expander::Hold(std::size_t wanted, ConstBytes* piece) {
  const std::size_t more = std::min(piece->size(), wanted - held_bytes_);
  std::memcpy(held_.data() + held_bytes_, piece->data(), more);
  held_bytes_ += more;
  *piece = piece->subspan(more);
  return held_bytes_ == wanted;
}

Status Expander::Take(ConstBytes piece) {
  if (piece.size() > compressed_ - taken_) return DataLoss("compressed numbers go on behind their end");
  taken_ += piece.size();
  while (!piece.empty()) {
    const bool within = held_bytes_ == 0 && piece.size() >= kMostGroupBytes + kReach;
    if (!within) {
      // A group that the end of the piece cuts, or is too near to for reads that reach beyond it.
      if (held_bytes_ < kBitmapBytes && !Hold(kBitmapBytes, &piece)) break;
      if (!Hold(GroupBytes(Load<std::uint64_t>(held_.data())), &piece)) break;
      held_bytes_ = 0;
    }
    const std::size_t bytes = TakeGroup(within ? piece.data() : held_.data());
    if (bytes == 0) return DataLoss("compressed numbers name words that are not there");
    if (within) piece = piece.subspan(bytes);
  }
  if ((taken_ == compressed_) != (expanded_ == into_.size())) {
    return DataLoss("compressed numbers end after " + std::to_string(expanded_) + " bytes, expected " +
                    std::to_string(into_.size()));
  }
  return OkStatus();
}

}  // namespace poseidon::factors
