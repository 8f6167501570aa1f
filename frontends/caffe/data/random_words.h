// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_RANDOM_WORDS_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_RANDOM_WORDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>

namespace poseidon::caffe {

// Random bits for one sample. The caller draws them from a counter, so that they depend on the
// sample alone and not on who reads it or when.
using RandomWords = std::array<std::uint32_t, 4>;

// Random bits for a sample number. Called on the reading threads; must be pure.
using SampleDraw = std::function<RandomWords(std::uint64_t sample)>;

// A whole number in [0, bound) from 32 random bits, for a bound up to 2^32; the bias is below bound / 2^32.
constexpr std::uint64_t Below(std::uint32_t random, std::uint64_t bound) { return (std::uint64_t{random} * bound) >> 32; }

// More bits for a sample number than one draw has, block by block. Pure as well.
using SampleBlocks = std::function<RandomWords(std::uint64_t sample, std::uint64_t block)>;

// The words of one sample from a block on, one after another.
class RandomSequence {
 public:
  RandomSequence(const SampleBlocks& blocks, std::uint64_t sample, std::uint64_t block) : blocks_(blocks), sample_(sample), block_(block) {}
  std::uint32_t Next() {
    if (used_ == words_.size()) {
      words_ = blocks_(sample_, block_++);
      used_ = 0;
    }
    return words_[used_++];
  }
  // A whole number in [0, bound).
  std::uint64_t NextBelow(std::uint64_t bound) { return Below(Next(), bound); }
  // Uniform in [low, high].
  float Uniform(float low, float high) { return low + (high - low) * static_cast<float>(Next() * 0x1p-32); }

 private:
  const SampleBlocks& blocks_;
  const std::uint64_t sample_;
  std::uint64_t block_;
  RandomWords words_{};
  std::size_t used_ = std::tuple_size_v<RandomWords>;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_RANDOM_WORDS_H_
