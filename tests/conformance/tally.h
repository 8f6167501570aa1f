// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_CONFORMANCE_TALLY_H_
#define POSEIDON_TESTS_CONFORMANCE_TALLY_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace poseidon::conformance {

// Counts what has happened on some executor, so that a test can wait for it instead of for a while.
class Tally {
 public:
  void Add(std::uint64_t count = 1) {
    // Notified under the lock: the waiter may destroy this as soon as it sees the count.
    std::lock_guard lock(mutex_);
    count_ += count;
    grew_.notify_all();
  }
  std::uint64_t value() const {
    std::lock_guard lock(mutex_);
    return count_;
  }
  // Blocks until `count` is reached; false when the patience is at an end, which fails the test.
  bool BlockUntil(std::uint64_t count,
                  std::chrono::seconds patience = std::chrono::seconds(60)) const {
    std::unique_lock lock(mutex_);
    return grew_.wait_for(lock, patience, [&] { return count_ >= count; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable grew_;
  std::uint64_t count_ = 0;
};

}  // namespace poseidon::conformance

#endif  // POSEIDON_TESTS_CONFORMANCE_TALLY_H_
