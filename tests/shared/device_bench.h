// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_SHARED_DEVICE_BENCH_H_
#define POSEIDON_TESTS_SHARED_DEVICE_BENCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "poseidon/base/bytes.h"
#include "poseidon/base/executor.h"
#include "poseidon/base/random.h"
#include "poseidon/base/task_queue.h"

// What tests of devices share.
namespace poseidon::device {

// Runs what is due, in order, when the test says so.
class ManualExecutor final : public Executor {
 public:
  void Post(Task task) override { queue_.Post(now_, next_++, std::move(task)); }
  TimerId PostAfter(Duration delay, Task task) override {
    queue_.PostAt(now_ + delay, next_, std::move(task));
    return next_++;
  }
  bool Cancel(TimerId timer) override { return static_cast<bool>(queue_.Cancel(timer)); }
  TimePoint now() const override { return now_; }
  bool OnExecutor() const override { return running_; }

  void Run() {
    while (const auto next = queue_.Next()) {
      now_ = std::max(now_, next->due);
      running_ = true;
      queue_.Pop()();
      running_ = false;
    }
  }

 private:
  TaskQueue queue_;
  TimePoint now_;
  std::uint64_t next_ = 1;
  bool running_ = false;
};

inline ByteBuffer RandomBytes(std::uint64_t seed, std::size_t size) {
  Random random(seed);
  ByteBuffer bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

inline bool Same(ConstBytes a, ConstBytes b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

}  // namespace poseidon::device

#endif  // POSEIDON_TESTS_SHARED_DEVICE_BENCH_H_
