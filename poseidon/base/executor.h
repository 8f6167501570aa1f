// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_EXECUTOR_H_
#define POSEIDON_BASE_EXECUTOR_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "poseidon/base/status.h"
#include "poseidon/base/unique_function.h"

namespace poseidon {

using Duration = std::chrono::nanoseconds;

// Steady time since an origin that the executor chose; comparable within one executor's family
// (all executors of a process, or all executors of one simulation).
struct TimePoint {
  Duration since_origin{0};
  friend constexpr auto operator<=>(TimePoint, TimePoint) = default;
  friend constexpr TimePoint operator+(TimePoint t, Duration d) { return {t.since_origin + d}; }
  friend constexpr Duration operator-(TimePoint a, TimePoint b) {
    return a.since_origin - b.since_origin;
  }
};

inline double ToSeconds(Duration d) { return std::chrono::duration<double>(d).count(); }
// At most the 200 years that nanoseconds hold and sums of them bear.
inline Duration FromSeconds(double seconds) {
  constexpr double kMost = 200.0 * 365 * 24 * 3600;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(seconds, kMost)));
}

// Holds in place a completion with the status that it is to be given.
using Task = UniqueFunction<void(), 96>;
// Fires exactly once, on the executor its taker documents, never inside the call that took it.
using Completion = UniqueFunction<void(Status)>;
using TimerId = std::uint64_t;

// Runs tasks one at a time, in the order they were posted, and owns time. Every mutable object of
// the core lives on one executor and is touched from its tasks only.
//
// Thread: all members may be called from any thread. An executor that is being destroyed drops the
// tasks it has not run (their destructors run), after the task under way has returned.
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `task` later, never inside this call.
  virtual void Post(Task task) = 0;
  // Runs `task` once `delay` (>= 0) has passed. The id is never 0.
  virtual TimerId PostAfter(Duration delay, Task task) = 0;
  // True when the timer was found and its task will not run.
  virtual bool Cancel(TimerId timer) = 0;
  virtual TimePoint now() const = 0;
  // True inside a task of this executor.
  virtual bool OnExecutor() const = 0;
};

}  // namespace poseidon

#endif  // POSEIDON_BASE_EXECUTOR_H_
