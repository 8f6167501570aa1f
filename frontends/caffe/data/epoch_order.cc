// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/epoch_order.h"

#include <numeric>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::caffe {

EpochOrder::EpochOrder(std::uint64_t size, EpochDraw draw) : size_(size), draw_(std::move(draw)) {
  POSEIDON_CHECK(size > 0 && size >> 32 == 0, "an epoch has at least one sample and less than 2^32");
}

std::uint64_t EpochOrder::At(std::uint64_t sample) {
  if (!draw_) return sample % size_;
  if (const std::uint64_t epoch = sample / size_; order_.empty() || epoch != epoch_) Shuffle(epoch);
  return order_[sample % size_];
}

// Fisher and Yates: every order with the same chance, but for 32 random bits a step.
void EpochOrder::Shuffle(std::uint64_t epoch) {
  order_.resize(size_);
  std::iota(order_.begin(), order_.end(), std::uint32_t{0});
  const EpochBits bits = draw_(epoch);
  for (std::uint64_t left = size_; left > 1; --left) {
    const std::uint64_t chosen = (std::uint64_t{bits(left)} * left) >> 32;
    std::swap(order_[left - 1], order_[chosen]);
  }
  epoch_ = epoch;
}

}  // namespace poseidon::caffe
