// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/progress_watch.h"

namespace poseidon::session {

void ProgressWatch::Look(const Sight& sight) {
  // A long gap between two looks is this process's own suspension, in which nothing could move: both counts begin anew.
  const bool absent = !last_ || sight.now - last_->now > own_absence_;
  if (absent || sight.work != last_->work) {
    moved_at_ = sight.now;
    children_then_.reset();
  }
  const Duration used = sight.used.value_or(Duration{0});
  // Compared with the use when idling began and not at the last look, so that a little now and then adds up to work.
  // The heartbeats' few milliseconds take longer than the window to make up the budget.
  if (absent || used - used_then_ >= budget_) {
    idle_since_ = sight.now;
    used_then_ = used;
  }
  last_ = sight;
}

void ProgressWatch::LookAtChildren(Duration used) {
  // It is less than it was where a child has ended for which nobody waits.
  if (!last_ || !children_then_ || used < *children_then_) {
    children_then_ = used;
  } else if (used - *children_then_ >= budget_) {
    idle_since_ = last_->now;
    children_then_ = used;
  }
}

}  // namespace poseidon::session
