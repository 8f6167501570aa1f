// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SIM_BYTE_QUEUE_H_
#define POSEIDON_SIM_BYTE_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <utility>

#include "poseidon/base/bytes.h"

namespace poseidon::sim {

// Bytes in order, in pieces as they came.
class ByteQueue {
 public:
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  void Push(ByteBuffer piece) {
    size_ += piece.size();
    if (!piece.empty()) pieces_.push_back(std::move(piece));
  }
  void Push(ConstBytes bytes) { Push(ByteBuffer(bytes.begin(), bytes.end())); }
  // Copies the first bytes out, as many as there are and fit; the count.
  std::size_t Pop(MutableBytes into) {
    std::size_t copied = 0;
    while (copied < into.size() && !pieces_.empty()) {
      const ConstBytes front = ConstBytes(pieces_.front()).subspan(begin_);
      const std::size_t count = std::min(front.size(), into.size() - copied);
      std::memcpy(into.data() + copied, front.data(), count);
      copied += count;
      begin_ += count;
      if (begin_ == pieces_.front().size()) {
        pieces_.pop_front();
        begin_ = 0;
      }
    }
    size_ -= copied;
    return copied;
  }
  ByteBuffer Pop(std::size_t count) {
    ByteBuffer bytes(std::min(count, size_));
    Pop(MutableBytes(bytes));
    return bytes;
  }
  void Clear() { *this = ByteQueue(); }

 private:
  std::deque<ByteBuffer> pieces_;
  std::size_t begin_ = 0;  // of what is left of the first piece
  std::size_t size_ = 0;
};

}  // namespace poseidon::sim

#endif  // POSEIDON_SIM_BYTE_QUEUE_H_
