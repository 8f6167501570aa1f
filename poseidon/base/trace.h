// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_TRACE_H_
#define POSEIDON_BASE_TRACE_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/base/executor.h"

namespace poseidon {

// One row of a worker's timeline.
enum class TraceLane : std::uint8_t { kCompute, kSend, kReceive, kSum, kRebuild, kWait };

// What happened between two moments; `layer` is an index into the layers of `model`, or -1.
struct TraceSpan {
  TraceLane lane = TraceLane::kCompute;
  std::int32_t layer = -1;
  std::uint64_t step = 0;
  TimePoint begin;
  TimePoint end;
  std::uint64_t bytes = 0;   // payload moved, 0 where none
  const char* label = "";    // a string literal: "forward", "backward", "push", "result", ...
  std::uint16_t model = 0;   // whose layer it is
};

// Collects spans of the steps [first_step, last_step]; cheap when off, bounded in memory (at most
// `capacity` spans, later ones are counted and dropped).
// Thread: all members may be called from any thread.
class TraceRecorder {
 public:
  explicit TraceRecorder(std::size_t capacity = 200'000) : capacity_(capacity) {}
  void Record(const TraceSpan& span) {
    std::lock_guard lock(mutex_);
    if (spans_.size() < capacity_) {
      spans_.push_back(span);
    } else {
      ++dropped_;
    }
  }
  // The spans so far, in the order they ended; empties the recorder.
  std::vector<TraceSpan> Take() {
    std::lock_guard lock(mutex_);
    return std::exchange(spans_, {});
  }
  std::uint64_t dropped() const {
    std::lock_guard lock(mutex_);
    return dropped_;
  }

 private:
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::vector<TraceSpan> spans_;
  std::uint64_t dropped_ = 0;
};

}  // namespace poseidon

#endif  // POSEIDON_BASE_TRACE_H_
