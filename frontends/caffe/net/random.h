// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_RANDOM_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_RANDOM_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace poseidon::caffe {

// Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
// (SC 2011): a keyed bijection of 128-bit counters whose outputs pass for independent random words.
// Having no state, it lets every worker draw exactly the numbers that belong to its own samples.
using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

constexpr PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;  // golden ratio
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;  // sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// 64-bit FNV-1a: a layer's name as a number that every worker agrees on.
constexpr std::uint64_t NameHash(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

// The purpose of a stream of numbers: streams of different purpose never meet.
enum class RandomPurpose : std::uint32_t {
  kFiller = 1,
  kDropout = 2,
  kTransform = 3,
  kDummy = 4,
  kSkip = 5,
  kShuffle = 6,
  kPooling = 7,
  kWindow = 8
};

// All random words of one purpose, one layer and one turn (a batch number, or the index of a blob
// to fill), addressed by sample and block. A value, cheap to copy.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, RandomPurpose purpose, std::string_view layer,
               std::uint64_t turn) {
    const std::uint64_t name = NameHash(layer);
    PhiloxKey key = {Low(seed), High(seed)};
    const PhiloxCounter a =
        Philox4x32({static_cast<std::uint32_t>(purpose), 0, Low(name), High(name)}, key);
    key = {a[0], a[1]};
    const PhiloxCounter b = Philox4x32({Low(turn), High(turn), a[2], a[3]}, key);
    key_ = {b[0], b[1]};
  }

  // Four words; `sample` is a global sample number, `block` counts within it.
  PhiloxCounter Draw(std::uint64_t sample, std::uint64_t block) const {
    return Philox4x32({Low(block), High(block), Low(sample), High(sample)}, key_);
  }

 private:
  static constexpr std::uint32_t Low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
  static constexpr std::uint32_t High(std::uint64_t x) {
    return static_cast<std::uint32_t>(x >> 32);
  }

  PhiloxKey key_{};
};

// Maps 32 random bits to a number in [0, 1).
constexpr double UnitInterval(std::uint32_t word) { return word * 0x1p-32; }

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_RANDOM_H_
