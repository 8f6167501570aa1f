// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_RANDOM_WORDS_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_RANDOM_WORDS_H_

#include <array>
#include <cstdint>
#include <functional>

namespace poseidon::caffe {

// Random bits for one sample. The caller draws them from a counter, so that they depend on the
// sample alone and not on who reads it or when.
using RandomWords = std::array<std::uint32_t, 4>;

// Random bits for a sample number. Called on the reading threads; must be pure.
using SampleDraw = std::function<RandomWords(std::uint64_t sample)>;

// A whole number in [0, bound) from 32 random bits, for a bound up to 2^32; the bias is below bound / 2^32.
constexpr std::uint64_t Below(std::uint32_t random, std::uint64_t bound) { return (std::uint64_t{random} * bound) >> 32; }

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_RANDOM_WORDS_H_
