// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_VERDICT_H_
#define POSEIDON_TOOLS_LAUNCH_VERDICT_H_

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch/events.h"
#include "tools/launch/launcher.h"

// Whose fault it was. Pure functions of what the launcher knows.
namespace poseidon::launch {

// What is known of one member that was started.
struct MemberRecord {
  const MemberProcess* member = nullptr;
  pid_t pid = 0;
  bool spoke = false;                   // an event came
  bool ended_by_us = false;             // the launcher let it go or killed it
  bool frozen = false;                  // it is stopped, or does not answer
  std::optional<int> wait_status = {};  // once it has ended
  std::optional<Failed> failure = {};   // the first that it said

  bool ended() const { return wait_status.has_value(); }
};

// What is known of a job.
struct JobRecord {
  std::vector<MemberRecord> members;               // that were started, by place
  std::string start_failure;                       // why the launcher gave up; empty where it did not
  std::vector<std::size_t> missing = {};           // for whom it had waited, by place
  std::optional<std::size_t> first_failed = {};    // the place of the member that failed first
  int stop_requests = 0;
  int stop_signal = 0;                             // the first that asked for a stop
  bool ended_early = false;                        // by one request to stop, before all had joined
};

// Whether somebody else ended the member.
bool WasKilled(const MemberRecord& record);
// Whether somebody else ended any of them.
bool AnyWasKilled(const std::vector<MemberRecord>& members);

// Whether the members that have not ended are those that the others accuse, and such as cannot end because they are frozen
// too: a failure accuses one.
bool OnlyAccusedAreLeft(const std::vector<MemberRecord>& members);
// Whether the members ended the job because this one, alive, kept them waiting for too long. Nobody needs what it may
// still be saving.
bool IsStuck(const std::vector<MemberRecord>& members, int place);

// The result of a job whose members agree on a verdict: what they say, else what happened to the first of them.
LaunchResult CommonVerdict(const JobRecord& job);
// The place of the member that a job's members blame, where they know nothing of each other themselves: whom the failure
// that came first in time blames, else the first that blames anybody. None where nobody is blamed.
std::optional<std::size_t> Blamed(const JobRecord& job);
// Whether it ends by itself, because it has ended the job, and has not ended yet.
bool EndsByItself(const JobRecord& job, std::size_t blamed);
// The result of a job whose members know nothing of each other: the member that is blamed, else the failure that came first
// in time; the others may follow from it.
LaunchResult FirstFailure(const JobRecord& job);

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_VERDICT_H_
