// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_COORDINATOR_PROGRESS_H_
#define POSEIDON_COORDINATOR_PROGRESS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "poseidon/coordinator/membership.h"
#include "poseidon/wire/messages.h"

// Who waits for whom, and when waiting has no end: a pure function beside membership.h, which knows who lives.
// A member that is alive sends heartbeats, also where its disk hangs, where it makes fewer steps than the others,
// or where a message was lost; without the rule below nobody would ever learn of it.
//
// The members report once nothing has moved at them for a while (wire::Progress). Work has stopped while nothing
// moves at any of them: one slow link on which bytes arrive is progress for all. Then the waits say who is missed.
// Of the members that are missed, the one whose program is not itself waiting in the core holds the others up.
namespace poseidon::coordinator {

struct ProgressRule {
  // After work has stopped for this long the coordinator logs a line, and again each time that doubles.
  Duration say_after = std::chrono::seconds(2);
  // The job ends when work has stopped for this long and the member that is waited for has used no processor
  // for as long; ten times as long where it uses one, or says what it is busy with.
  Duration stuck_after = std::chrono::seconds(60);
  // Members report when nothing has moved at them this long.
  Duration report_after() const { return say_after / 2; }
  Duration busy_limit() const { return 10 * stuck_after; }

  friend bool operator==(const ProgressRule&, const ProgressRule&) = default;
};

// Something that a member waits for.
struct Wait {
  std::string what;             // "the gradient of layer 'ip1' in step 17"
  std::uint64_t step = 0;       // of two waits the one of the earlier step holds up the other
  std::vector<MemberId> on;     // who has not brought it
  std::string of = {};          // "layer 'ip1' in step 17": a mean and the contributions to it are of the same
  friend bool operator==(const Wait&, const Wait&) = default;
};

// A member's report about itself.
struct ProgressReport {
  TimePoint at;            // when it came
  Duration quiet{0};       // nothing has moved at this member for so long
  Duration idle{0};        // its program has used no processor for so long
  bool blocked = false;    // its program waits in a call to the core
  std::string busy_with;   // what it says that it does: "evaluates"; may be empty
  std::vector<Wait> waits; // for contributions of others
  std::vector<Wait> owed;  // for what others make of contributions: a sum
  friend bool operator==(const ProgressReport&, const ProgressReport&) = default;
};

// A value; change it with Reported and Judge only.
struct ProgressState {
  ProgressRule rule;
  std::vector<Member> members;
  std::map<MemberId, ProgressReport> reports;  // the latest of each
  std::optional<Duration> next_remark;         // the next line is logged when work has stopped for this long
  Duration usual{0};                           // the longest time of computing alone for which a line was logged
  bool ended = false;

  friend bool operator==(const ProgressState&, const ProgressState&) = default;
};

// The coordinator's own knowledge, besides the reports.
struct Standing {
  std::set<MemberId> left;  // have finished their part
  std::set<MemberId> gone;  // and their connection has ended: they report no more
  std::vector<Wait> waits;  // for what members report to the coordinator: layers, times, the end
};

struct ProgressJudgement {
  ProgressState state;
  std::string remark;  // to be logged; empty: nothing
  // The job ends. `reason` is a sentence, or, where there is a culprit, the rest of one that begins with its name.
  struct End {
    std::optional<MemberId> culprit;
    std::string reason;
    friend bool operator==(const End&, const End&) = default;
  };
  std::optional<End> end;  // at most once
};

// Returns what a member says that it waits for, in words. `layer` is its layer's name, empty where that is not known.
Wait InWords(const wire::Wait& wait, const std::string& layer, bool several_models);

ProgressState BeginProgress(const ProgressRule& rule, std::vector<Member> members);
ProgressState Reported(ProgressState state, MemberId member, ProgressReport report);
ProgressJudgement JudgeProgress(ProgressState state, const Standing& standing, TimePoint now);

}  // namespace poseidon::coordinator

#endif  // POSEIDON_COORDINATOR_PROGRESS_H_
