// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SIM_BYTE_QUEUE_H_
#define POSEIDON_SIM_BYTE_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "poseidon/base/bytes.h"

namespace poseidon::sim {

// Bytes in order, in pieces as they came. A hollow piece has a size and no bytes: what it is taken into
// stays as it was.
class ByteQueue {
 public:
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  void Push(ByteBuffer piece) {
    const std::size_t size = piece.size();
    Append({std::move(piece), size});
  }
  void Push(ConstBytes bytes) { Push(ByteBuffer(bytes.begin(), bytes.end())); }
  void PushHollow(std::size_t size) { Append({{}, size}); }
  void Push(ByteQueue other) {
    while (!other.empty()) Append(other.TakePiece(other.size()));
  }
  // Copies the first bytes out, as many as there are and fit; the count.
  std::size_t Pop(MutableBytes into) {
    std::size_t taken = 0;
    while (taken < into.size() && !empty()) {
      const Piece& front = pieces_[first_];
      const std::size_t count = std::min(front.size - begin_, into.size() - taken);
      if (!front.bytes.empty()) {
        std::memcpy(into.data() + taken, front.bytes.data() + begin_, count);
      }
      taken += count;
      Drop(count);
    }
    return taken;
  }
  ByteBuffer Pop(std::size_t count) {
    ByteBuffer bytes(std::min(count, size_));
    Pop(MutableBytes(bytes));
    return bytes;
  }
  // The first bytes as a queue of their own, as many as there are up to `count`.
  ByteQueue Take(std::size_t count) {
    ByteQueue taken;
    while (taken.size() < count && !empty()) taken.Append(TakePiece(count - taken.size()));
    return taken;
  }
  void Clear() { *this = ByteQueue(); }

 private:
  struct Piece {
    ByteBuffer bytes;  // empty: hollow
    std::size_t size = 0;
  };

  void Append(Piece piece) {
    if (piece.size == 0) return;
    size_ += piece.size;
    pieces_.push_back(std::move(piece));
  }
  // Of the first piece, at most `most` bytes.
  Piece TakePiece(std::size_t most) {
    Piece& front = pieces_[first_];
    Piece taken{{}, std::min(front.size - begin_, most)};
    if (taken.size == front.size) {
      taken.bytes = std::move(front.bytes);
    } else if (!front.bytes.empty()) {
      const auto from = front.bytes.begin() + static_cast<std::ptrdiff_t>(begin_);
      taken.bytes.assign(from, from + static_cast<std::ptrdiff_t>(taken.size));
    }
    Drop(taken.size);
    return taken;
  }
  // Forgets the first `count` bytes, all of the first piece.
  void Drop(std::size_t count) {
    begin_ += count;
    size_ -= count;
    if (begin_ < pieces_[first_].size) return;
    begin_ = 0;
    pieces_[first_++].bytes = {};
    if (first_ == pieces_.size() || first_ > kMostDropped) {
      pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
  }

  static constexpr std::size_t kMostDropped = 256;
  std::vector<Piece> pieces_;
  std::size_t first_ = 0;  // those before it are gone
  std::size_t begin_ = 0;  // of what is left of the first piece
  std::size_t size_ = 0;
};

}  // namespace poseidon::sim

#endif  // POSEIDON_SIM_BYTE_QUEUE_H_
