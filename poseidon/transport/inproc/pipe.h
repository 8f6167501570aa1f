// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_INPROC_PIPE_H_
#define POSEIDON_TRANSPORT_INPROC_PIPE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "poseidon/base/bytes.h"
#include "poseidon/base/mutex.h"

namespace poseidon::transport::inproc {

// One direction of a connection: a bounded ring of bytes between one writer and one reader, each on
// a thread of its own. The writer owns the free part of the ring and the reader the filled part, so
// bytes are copied outside the lock and only the two positions change under it.
class Pipe {
 public:
  explicit Pipe(std::size_t capacity)
      : capacity_(capacity), ring_(std::make_unique_for_overwrite<std::byte[]>(capacity)) {}

  struct State {
    std::uint64_t written = 0;  // bytes since the start
    std::uint64_t read = 0;
    std::size_t filled = 0;
    bool writer_closed = false;
    bool reader_closed = false;
  };
  State state() const {
    MutexLock lock(mutex_);
    return {written_, read_, static_cast<std::size_t>(written_ - read_), writer_closed_, reader_closed_};
  }

  // Copies as much of `from` as there is room for; the count. Writer only.
  std::size_t Put(ConstBytes from) {
    const State before = state();
    const std::size_t count = std::min(from.size(), capacity_ - before.filled);
    const std::size_t start = before.written % capacity_;
    const std::size_t first = std::min(count, capacity_ - start);
    if (first > 0) std::memcpy(ring_.get() + start, from.data(), first);
    if (count > first) std::memcpy(ring_.get(), from.data() + first, count - first);
    MutexLock lock(mutex_);
    written_ = before.written + count;
    return count;
  }
  // Copies as much as there is into `into`; the count. Reader only.
  std::size_t Take(MutableBytes into) {
    const State before = state();
    const std::size_t count = std::min(into.size(), before.filled);
    const std::size_t start = before.read % capacity_;
    const std::size_t first = std::min(count, capacity_ - start);
    if (first > 0) std::memcpy(into.data(), ring_.get() + start, first);
    if (count > first) std::memcpy(into.data() + first, ring_.get(), count - first);
    MutexLock lock(mutex_);
    read_ = before.read + count;
    return count;
  }
  // No more bytes will come; what is in the ring can still be read.
  void CloseWriter() {
    MutexLock lock(mutex_);
    writer_closed_ = true;
  }
  // Nobody will read any more.
  void CloseReader() {
    MutexLock lock(mutex_);
    reader_closed_ = true;
  }

 private:
  const std::size_t capacity_;
  const std::unique_ptr<std::byte[]> ring_;

  // Each position changes on one thread only: the writer's, or the reader's.
  mutable Mutex mutex_;
  std::uint64_t written_ POSEIDON_GUARDED_BY(mutex_) = 0;
  std::uint64_t read_ POSEIDON_GUARDED_BY(mutex_) = 0;
  bool writer_closed_ POSEIDON_GUARDED_BY(mutex_) = false;
  bool reader_closed_ POSEIDON_GUARDED_BY(mutex_) = false;
};

}  // namespace poseidon::transport::inproc

#endif  // POSEIDON_TRANSPORT_INPROC_PIPE_H_
