// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_PROGRESS_WATCH_H_
#define POSEIDON_SESSION_PROGRESS_WATCH_H_

#include <cstdint>
#include <optional>

#include "poseidon/base/executor.h"

namespace poseidon::session {

// Measures since when nothing moves at this member, and since when it uses no processor, from samples that are
// taken now and then. A push costs it only a count.
class ProgressWatch {
 public:
  // A program that uses less than a hundredth of `window` in processor time is idle. Between two samples further
  // apart than `own_absence` the process was itself suspended, and that time does not count.
  ProgressWatch(Duration window, Duration own_absence) : budget_(window / 100), own_absence_(own_absence) {}

  struct Sight {
    TimePoint now;
    std::uint64_t work = 0;        // grows while work goes on
    std::optional<Duration> used;  // processor time; none: unknown, and the program counts as busy
  };
  void Look(const Sight& sight);
  // The processor time of the processes that the program has started, at the last look. They work for it: a program whose
  // children compute is not idle.
  void LookAtChildren(Duration used);

  Duration quiet() const { return last_ ? last_->now - moved_at_ : Duration{0}; }
  Duration idle() const { return last_ && last_->used ? last_->now - idle_since_ : Duration{0}; }

 private:
  const Duration budget_;
  const Duration own_absence_;
  std::optional<Sight> last_;
  TimePoint moved_at_;
  TimePoint idle_since_;  // since then less than the budget was used
  Duration used_then_{0};
  std::optional<Duration> children_then_;  // none since work moved
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_PROGRESS_WATCH_H_
