// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_EPOCH_ORDER_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_EPOCH_ORDER_H_

#include <cstdint>
#include <functional>
#include <vector>

namespace poseidon::caffe {

// Random bits of one epoch, by number. Pure.
using EpochBits = std::function<std::uint32_t(std::uint64_t number)>;
// The bits of an epoch. Pure: all workers have the same.
using EpochDraw = std::function<EpochBits(std::uint64_t epoch)>;

// The numbers below `size`, which is below 2^32, by Fisher and Yates: every order with the same chance, but for 32 random bits
// a step.
std::vector<std::uint32_t> ShuffledNumbers(std::uint64_t size, const EpochBits& bits);

// Which of `size` stored things sample g of an endless sequence is: the things as they are stored, over and over, or shuffled
// anew for every epoch. The order of an epoch depends on its number alone, so that any worker can begin anywhere.
// Thread: one at a time.
class EpochOrder {
 public:
  // 1 <= size < 2^32. Without a draw nothing is shuffled.
  EpochOrder(std::uint64_t size, EpochDraw draw);
  // A sample of another epoch than the last one's takes time and memory by size (4 bytes each).
  std::uint64_t At(std::uint64_t sample);

 private:
  const std::uint64_t size_;
  const EpochDraw draw_;
  std::uint64_t epoch_ = 0;
  std::vector<std::uint32_t> order_;  // of epoch_; empty before the first
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_EPOCH_ORDER_H_
