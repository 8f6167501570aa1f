// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FACTORS_ZERO_COMPRESSION_H_
#define POSEIDON_FACTORS_ZERO_COMPRESSION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "poseidon/base/bytes.h"
#include "poseidon/base/status.h"

// Zero-value compression: what is sent of numbers many of which are +0.0, as behind ReLU and dropout. The numbers are
// taken as words of 32 bits, whatever their dtype, and only words of which no bit is set are left out: a NaN, -0.0 and
// every other pattern come out as they went in.
//
// The bytes: for every 64 words, the last of which may be fewer, a bitmap of 64 bits, little-endian, whose bit i says
// that word i is not zero, and then those words. Bits of words that are not there are 0. Pure functions, the same bytes
// on every path.
namespace poseidon::factors {

inline constexpr std::size_t kWordBytes = 4;
inline constexpr std::size_t kGroupWords = 64;
inline constexpr std::size_t kBitmapBytes = kGroupWords / 8;
inline constexpr std::size_t kGroupBytes = kGroupWords * kWordBytes;

// How the words are moved.
enum class CompressionPath : std::uint8_t { kPortable, kAvx2 };
// Those of this processor, the fastest last.
std::span<const CompressionPath> CompressionPaths();

// The fewest and the most bytes that `bytes` become: nothing but zeros, and not one.
constexpr std::uint64_t LeastCompressedBytes(std::uint64_t bytes) {
  return (bytes / kGroupBytes + (bytes % kGroupBytes != 0 ? 1 : 0)) * kBitmapBytes;
}
constexpr std::uint64_t MostCompressedBytes(std::uint64_t bytes) { return LeastCompressedBytes(bytes) + bytes; }

// Returns about how many bytes `bytes` become, from at most 4 KiB of them, spread over the whole.
// Pre: a multiple of kWordBytes.
std::uint64_t EstimateCompressedBytes(ConstBytes bytes);

// Writes `bytes` compressed to the beginning of `out`, which it may use to its end, and returns how many bytes they
// have become; none where `out` has no room for them. Pre: a multiple of kWordBytes; `out` is other memory.
std::optional<std::uint64_t> Compress(ConstBytes bytes, MutableBytes out,
                                      CompressionPath path = CompressionPaths().back());

// Takes compressed bytes as they come, cut anywhere, and writes the words of each group once it is whole.
// Thread: one at a time. Lifetime: `into` outlives it.
class Expander {
 public:
  // Expects `compressed` bytes, from which `into` becomes whole. Pre: `into` is a multiple of kWordBytes.
  Expander(MutableBytes into, std::uint64_t compressed, CompressionPath path = CompressionPaths().back());

  // kDataLoss where the bytes end too early or too late for `into`, or a bitmap names words that are not there; `into`
  // then holds anything.
  Status Take(ConstBytes piece);

  std::uint64_t compressed() const { return compressed_; }
  std::uint64_t taken() const { return taken_; }        // bytes of the compressed ones
  std::uint64_t expanded() const { return expanded_; }  // bytes written to the beginning of `into`

 private:
  // How far a read may go beyond the words of a group.
  static constexpr std::size_t kReach = 32;

  std::size_t TakeGroup(const std::byte* from);
  bool Hold(std::size_t wanted, ConstBytes* piece);

  MutableBytes into_;
  std::uint64_t compressed_;
  CompressionPath path_;
  std::uint64_t taken_ = 0;
  std::uint64_t expanded_ = 0;
  // The beginning of a group whose end has not come.
  std::array<std::byte, kBitmapBytes + kGroupBytes + kReach> held_{};
  std::size_t held_bytes_ = 0;
};

}  // namespace poseidon::factors

#endif  // POSEIDON_FACTORS_ZERO_COMPRESSION_H_
