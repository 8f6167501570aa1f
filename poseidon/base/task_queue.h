// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_TASK_QUEUE_H_
#define POSEIDON_BASE_TASK_QUEUE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "poseidon/base/executor.h"
#include "poseidon/base/ring.h"

namespace poseidon {

// The tasks and timers of one executor, in the one order every executor of ours keeps: by the time
// they are due, then by the order they came in. A posted task is due when it is posted, so a timer
// that has expired waits for what was posted before it, and neither starves the other.
// Not thread-safe.
class TaskQueue {
 public:
  // `now` must not decrease from call to call.
  void Post(TimePoint now, std::uint64_t sequence, Task task) {
    posted_.push_back({{now, sequence}, std::move(task)});
  }
  // `sequence` (never 0) becomes the timer's id.
  void PostAt(TimePoint due, std::uint64_t sequence, Task task) {
    timers_.emplace(Place{due, sequence}, std::move(task));
    due_of_.emplace(sequence, due);
  }
  // The timer's task, so that the caller can destroy it outside its lock; empty when not found.
  Task Cancel(TimerId timer) {
    const auto found = due_of_.find(timer);
    if (found == due_of_.end()) return nullptr;
    auto node = timers_.extract(Place{found->second, timer});
    due_of_.erase(found);
    return std::move(node.mapped());
  }

  struct Place {
    TimePoint due;
    std::uint64_t sequence = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  // Place of the task that Pop would return, nothing when there is none.
  std::optional<Place> Next() const {
    if (posted_.empty() && timers_.empty()) return std::nullopt;
    return TimerIsNext() ? timers_.begin()->first : posted_.front().place;
  }
  // Takes the next task, whether or not it is due yet. The queue must not be empty.
  Task Pop() {
    if (TimerIsNext()) {
      auto node = timers_.extract(timers_.begin());
      due_of_.erase(node.key().sequence);
      return std::move(node.mapped());
    }
    return posted_.Take().task;
  }
  bool empty() const { return posted_.empty() && timers_.empty(); }

 private:
  struct Posted {
    Place place;
    Task task;
  };
  bool TimerIsNext() const {
    if (timers_.empty()) return false;
    return posted_.empty() || timers_.begin()->first < posted_.front().place;
  }

  Ring<Posted> posted_;
  std::map<Place, Task> timers_;
  std::unordered_map<TimerId, TimePoint> due_of_;
};

}  // namespace poseidon

#endif  // POSEIDON_BASE_TASK_QUEUE_H_
