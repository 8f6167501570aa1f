// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_ENDING_H_
#define POSEIDON_TOOLS_LAUNCH_ENDING_H_

#include <chrono>
#include <optional>

#include "tools/launch/launcher.h"
#include "tools/launch/member.h"
#include "tools/launch/members.h"

namespace poseidon::launch {

// Seconds, as options have them, for the clock.
std::chrono::steady_clock::duration FromSeconds(double seconds);

// When the members of a job are ended that do not end by themselves. Nobody who is saving is, for so long as a failed disk
// may take; but for one whose saving hangs, or who is frozen. Thread: the launcher's.
class Ending {
 public:
  using Clock = std::chrono::steady_clock;

  // Lifetime: that of `options`.
  explicit Ending(const LaunchOptions& options) : options_(options) {}

  // Who has not ended in so long a time from now is ended; an earlier moment that was set stays.
  void Within(Clock::duration time);
  // A member has failed: the others have the grace, and who is saving the time for that, from the first failure on.
  void BeginAfterFailure();
  // `member` has saved: while the job ends it has the grace again.
  void NoteSaved(Member& member);

  // When OnDeadline is due, if at all.
  const std::optional<Clock::time_point>& deadline() const { return deadline_; }
  // Kills those whose time is over, and sets the next moment where others have some left.
  void OnDeadline(Members& members);

 private:
  void At(Clock::time_point deadline);
  Clock::duration Grace() const { return FromSeconds(options_.grace_seconds); }

  const LaunchOptions& options_;
  std::optional<Clock::time_point> deadline_;         // when who does not save is ended
  std::optional<Clock::time_point> saving_deadline_;  // when who saves is; set by the first failure
};

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_ENDING_H_
