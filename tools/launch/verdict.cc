// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/verdict.h"

#include <sys/wait.h>

#include <algorithm>
#include <set>

#include "poseidon/base/listed.h"
#include "tools/console/exit_code.h"
#include "tools/launch/process.h"

namespace poseidon::launch {
namespace {

using tools::kExitFailed;
using tools::kExitMemberLost;
using tools::kExitOk;

// Where a member was to start elsewhere and never spoke, what ended is the command that should have
// reached it; its own words are on standard error.
std::string DescribeEnd(const MemberRecord& record) {
  std::string how = DescribeWaitStatus(*record.wait_status);
  if (!record.member->remote) return how;
  const std::string& reached_by = record.member->argv.front();
  const bool by_ssh = WIFEXITED(*record.wait_status) && WEXITSTATUS(*record.wait_status) == 255;
  if (record.spoke) return by_ssh ? "was killed, or its host is gone: " + reached_by + " " + how : how;
  return "could not be started: " + reached_by + " " + how;
}

std::vector<MemberEnd> EndsOf(const JobRecord& job) {
  std::vector<MemberEnd> ends;
  for (const MemberRecord& record : job.members) {
    ends.push_back({record.member->name, record.pid, record.ended() ? DescribeWaitStatus(*record.wait_status) : "",
                    record.failure});
  }
  for (const std::size_t place : job.missing) {
    if (ends[place].failure) continue;
    ends[place].failure = Failed{.message = job.start_failure,
                                 .culprit = static_cast<int>(place),
                                 .lost = true,
                                 .code = StatusCode::kDeadlineExceeded};
  }
  return ends;
}

// The result as far as the launcher itself knows it.
LaunchResult Begin(const JobRecord& job) {
  LaunchResult result{.stop_signal = job.stop_signal, .ends = EndsOf(job)};
  if (job.start_failure.empty()) return result;
  result.exit_code = job.missing.empty() ? kExitFailed : kExitMemberLost;
  result.failure = job.start_failure;
  return result;
}

// Adds what the members say. A message with a culprit counts more than one of a side that is cut off and has none, which
// then both are heard; what somebody may have lost counts less than another failure.
void AddWhatMembersSay(const JobRecord& job, bool killed, LaunchResult* result) {
  bool in_doubt = false;  // the failure so far has no culprit among those who may be lost
  std::string other_side;
  for (const MemberRecord& record : job.members) {
    // Who is let go may complain that another one has gone before.
    if (!record.failure || (record.ended_by_us && job.ended_early)) continue;
    const Failed& said = *record.failure;
    const bool lost = said.NamesLoss();
    // Where a member was killed, only a message that a member is lost counts: other failures follow from that.
    if (killed && !lost) continue;
    if (result->failure.empty() || (!lost && result->exit_code == kExitMemberLost) || (said.Accuses() && in_doubt)) {
      result->failure = said.message;
      result->exit_code = lost ? kExitMemberLost : said.exit.value_or(kExitFailed);
      in_doubt = lost && !said.Accuses();
    } else if (in_doubt && other_side.empty() && said.message != result->failure) {
      other_side = "; " + record.member->name + " says: " + said.message;
    }
  }
  if (in_doubt) result->failure += other_side;
}

// What a member's session has said of the job's end.
std::string VerdictOn(const JobRecord& job, std::size_t blamed) {
  for (const MemberRecord& record : job.members) {
    const std::optional<Failed>& failure = record.failure;
    if (failure && failure->Accuses(static_cast<int>(blamed)) && failure->verdict) return ": " + *failure->verdict;
  }
  return "";
}

// Whether the member has ended the job by an error of its own, which the others know.
bool HasSaidWhy(const JobRecord& job, std::size_t failed) {
  return std::any_of(job.members.begin(), job.members.end(), [failed](const MemberRecord& other) {
    return other.failure && other.failure->Accuses(static_cast<int>(failed)) && other.failure->code == StatusCode::kAborted;
  });
}

// Adds the end of the member that failed. One that is blamed and ended well, or was ended, has no code of its own.
void AddHowItFailed(const JobRecord& job, std::size_t failed, LaunchResult* result) {
  const MemberRecord& record = job.members[failed];
  const std::string& name = record.member->name;
  if (record.ended_by_us) {
    result->exit_code = kExitMemberLost;
    result->failure = name + " was ended" + VerdictOn(job, failed);
  } else if (record.failure) {
    result->exit_code = record.failure->exit.value_or(kExitFailed);
    result->failure = record.failure->message + (HasSaidWhy(job, failed) ? VerdictOn(job, failed) : "");
  } else if (const int code = ExitCodeOf(*record.wait_status); code != kExitOk) {
    result->exit_code = code;
    result->failure = name + " " + DescribeEnd(record);
  } else {
    const MemberRecord& first = job.members[*job.first_failed];
    result->exit_code = first.failure ? first.failure->exit.value_or(kExitFailed) : ExitCodeOf(*first.wait_status);
    result->failure = name + " " + DescribeEnd(record) + VerdictOn(job, failed);
  }
}

// Adds the members that ended badly without a word. Returns those of them that the launcher ended.
std::string AddWhoEndedSilently(const JobRecord& job, bool killed, LaunchResult* result) {
  std::string ended_by_us;
  for (const MemberRecord& record : job.members) {
    if (!record.ended() || *record.wait_status == 0 || record.failure) continue;
    if (record.ended_by_us) {
      if (job.ended_early) continue;
      AddListed(record.member->name, &ended_by_us);
    } else {
      result->failure += (result->failure.empty() ? "" : "; ") + record.member->name + " " + DescribeEnd(record);
    }
    if (result->exit_code == kExitOk) result->exit_code = killed ? kExitMemberLost : kExitFailed;
  }
  return ended_by_us;
}

}  // namespace

// On another host what ended is the command that reached it: a shell adds 128 to the signal's number, and 255 is ssh's
// when it lost the host.
bool WasKilled(const MemberRecord& record) {
  if (!record.ended() || record.ended_by_us || record.failure) return false;
  if (WIFSIGNALED(*record.wait_status)) return true;
  return record.member->remote && record.spoke && WEXITSTATUS(*record.wait_status) > 128;
}

bool AnyWasKilled(const std::vector<MemberRecord>& members) {
  return std::any_of(members.begin(), members.end(), WasKilled);
}

bool OnlyAccusedAreLeft(const std::vector<MemberRecord>& members) {
  std::set<int> accused;
  bool in_doubt = false;
  for (const MemberRecord& record : members) {
    if (!record.failure) continue;
    accused.insert(record.failure->culprit.value_or(kNoCulprit));
    in_doubt |= record.failure->NamesLoss() && !record.failure->Accuses();
  }
  int place = 0;
  for (const MemberRecord& record : members) {
    const bool is_accused = accused.contains(place++);
    // Nobody is accused where nobody can know who is cut off. A member of another host may be on the far side, from
    // which no end of its process comes.
    const bool may_be_cut_off = in_doubt && record.member->remote;
    if (!record.ended() && !is_accused && !may_be_cut_off && !record.frozen) return false;
  }
  return true;
}

bool IsStuck(const std::vector<MemberRecord>& members, int place) {
  return std::any_of(members.begin(), members.end(), [place](const MemberRecord& record) {
    return record.failure && record.failure->Accuses(place) && record.failure->code == StatusCode::kDeadlineExceeded;
  });
}

LaunchResult CommonVerdict(const JobRecord& job) {
  LaunchResult result = Begin(job);
  if (result.exit_code != kExitOk) return result;
  const bool killed = AnyWasKilled(job.members);
  AddWhatMembersSay(job, killed, &result);
  const std::string ended_by_us = AddWhoEndedSilently(job, killed, &result);
  if (result.exit_code != kExitOk && result.failure.empty()) {
    result.failure = job.stop_requests > 1 ? "the job was ended at once by a second request to stop" : "the job was ended";
  }
  if (!ended_by_us.empty() && job.stop_requests == 0) {
    result.failure += " (ended by the launcher: " + ended_by_us + ")";
  }
  return result;
}

std::optional<std::size_t> Blamed(const JobRecord& job) {
  const auto blamed_by = [&job](const MemberRecord& record) -> std::optional<std::size_t> {
    if (!record.failure || !record.failure->Accuses()) return std::nullopt;
    const auto place = static_cast<std::size_t>(*record.failure->culprit);
    return place < job.members.size() ? std::optional(place) : std::nullopt;  // the number comes from the rank's command
  };
  if (!job.first_failed) return std::nullopt;
  if (const auto first = blamed_by(job.members[*job.first_failed])) return first;
  for (const MemberRecord& record : job.members) {
    if (const auto other = blamed_by(record)) return other;
  }
  return std::nullopt;
}

bool EndsByItself(const JobRecord& job, std::size_t blamed) {
  const MemberRecord& record = job.members[blamed];
  return !record.ended() && !record.failure && HasSaidWhy(job, blamed);
}

LaunchResult FirstFailure(const JobRecord& job) {
  LaunchResult result = Begin(job);
  if (result.exit_code != kExitOk) return result;
  if (job.first_failed) {
    const std::size_t failed = Blamed(job).value_or(*job.first_failed);
    result.failed = static_cast<int>(failed);
    AddHowItFailed(job, failed, &result);
  } else if (std::any_of(job.members.begin(), job.members.end(),
                         [](const MemberRecord& record) { return record.ended_by_us; })) {
    result.exit_code = kExitFailed;
    result.failure = "the job was ended";
  }
  return result;
}

}  // namespace poseidon::launch
