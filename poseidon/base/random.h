// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_RANDOM_H_
#define POSEIDON_BASE_RANDOM_H_

#include <array>
#include <cstdint>
#include <limits>

#include "poseidon/base/check.h"

namespace poseidon {

// One step of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) as a pure function: scatters neighbouring
// numbers over all 64 bits. Good for seeds, running hashes and counter-based patterns.
constexpr std::uint64_t Mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A small generator whose numbers depend on its seed alone, on every machine and compiler:
// xoshiro256** (Blackman, Vigna, ACM TOMS 2021). A value: a copy repeats what the original gives.
// Not for secrets.
class Random {
 public:
  using result_type = std::uint64_t;

  explicit constexpr Random(std::uint64_t seed) {
    for (std::uint64_t& word : state_) word = seed = Mix64(seed);
  }

  constexpr std::uint64_t operator()() {
    const std::uint64_t result = Rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t carried = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= carried;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }
  static constexpr std::uint64_t min() { return 0; }
  static constexpr std::uint64_t max() { return std::numeric_limits<std::uint64_t>::max(); }

  // Uniform in [0, bound), bound > 0. The bias of the multiplication is below bound / 2^64.
  constexpr std::uint64_t Below(std::uint64_t bound) {
    POSEIDON_CHECK(bound > 0, "a range must not be empty");
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>((*this)()) * bound) >> 64);
  }
  // Uniform in [first, last].
  constexpr std::uint64_t Between(std::uint64_t first, std::uint64_t last) {
    return first + Below(last - first + 1);
  }
  // Uniform in [0, 1), all 53 bits.
  constexpr double Unit() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }
  constexpr bool Chance(double probability) { return Unit() < probability; }
  // A generator of its own for a part, so that more draws in one part do not shift another.
  constexpr Random Fork() { return Random((*this)()); }

 private:
  static constexpr std::uint64_t Rotate(std::uint64_t x, int by) {
    return (x << by) | (x >> (64 - by));
  }
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace poseidon

#endif  // POSEIDON_BASE_RANDOM_H_
