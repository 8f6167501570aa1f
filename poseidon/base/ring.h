// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_RING_H_
#define POSEIDON_BASE_RING_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace poseidon {

// A queue, first in, first out, that takes the places of what has left for what comes: as long as it does not get longer than
// it has been, it allocates nothing. (A std::deque allocates again every few entries.)
// Memory: at most twice the longest that it has been. Not thread-safe.
template <typename T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  // Pre: not empty.
  T& front() { return places_[first_]; }
  const T& front() const { return places_[first_]; }

  void push_back(T entry) {
    if (size_ == places_.size()) Grow();
    places_[(first_ + size_++) & (places_.size() - 1)] = std::move(entry);
  }
  // Takes the front. Pre: not empty.
  T Take() {
    T entry = std::move(places_[first_]);
    first_ = (first_ + 1) & (places_.size() - 1);
    --size_;
    return entry;
  }

 private:
  void Grow() {
    std::vector<T> larger(places_.empty() ? 8 : 2 * places_.size());
    const std::size_t size = size_;
    for (std::size_t i = 0; i < size; ++i) larger[i] = Take();
    places_ = std::move(larger);
    first_ = 0;
    size_ = size;
  }

  std::vector<T> places_;  // as many as a power of two
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace poseidon

#endif  // POSEIDON_BASE_RING_H_
