// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/epoch_order.h"

#include <numeric>
#include <utility>

#include "frontends/caffe/data/random_words.h"
#include "poseidon/base/check.h"

namespace poseidon::caffe {

std::vector<std::uint32_t> ShuffledNumbers(std::uint64_t size, const EpochBits& bits) {
  std::vector<std::uint32_t> order(size);
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  for (std::uint64_t left = size; left > 1; --left) {
    std::swap(order[left - 1], order[Below(bits(left), left)]);
  }
  return order;
}

EpochOrder::EpochOrder(std::uint64_t size, EpochDraw draw) : size_(size), draw_(std::move(draw)) {
  POSEIDON_CHECK(size > 0 && size >> 32 == 0, "an epoch has at least one sample and less than 2^32");
}

std::uint64_t EpochOrder::At(std::uint64_t sample) {
  if (!draw_) return sample % size_;
  if (const std::uint64_t epoch = sample / size_; order_.empty() || epoch != epoch_) {
    order_ = ShuffledNumbers(size_, draw_(epoch));
    epoch_ = epoch;
  }
  return order_[sample % size_];
}

}  // namespace poseidon::caffe
