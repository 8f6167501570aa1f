// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/ending.h"

#include <algorithm>
#include <vector>

#include "tools/launch/verdict.h"

namespace poseidon::launch {

std::chrono::steady_clock::duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

void Ending::Within(Clock::duration time) {
  const Clock::time_point deadline = Clock::now() + time;
  if (!deadline_ || deadline < *deadline_) deadline_ = deadline;
}

void Ending::BeginAfterFailure() {
  if (!saving_deadline_) saving_deadline_ = Clock::now() + FromSeconds(options_.saving_seconds);
  Within(Grace());
}

void Ending::NoteSaved(Member& member) {
  if (!saving_deadline_) return;
  member.Spare(Clock::now() + Grace());
  Within(Grace());
}

void Ending::OnDeadline(Members& members) {
  deadline_.reset();
  const std::vector<MemberRecord> records = members.Records();
  int place = -1;
  for (Member& member : members) {
    ++place;
    if (member.ended()) continue;
    const bool may_save = member.saving() && !IsStuck(records, place) && saving_deadline_ && Clock::now() < *saving_deadline_;
    if (may_save && member.Lives(FromSeconds(options_.answer_seconds))) {
      Within(std::min(FromSeconds(options_.answer_seconds), *saving_deadline_ - Clock::now()));
    } else if (member.spared_until() && Clock::now() < *member.spared_until()) {
      Within(*member.spared_until() - Clock::now());
    } else {
      member.Kill();
    }
  }
}

}  // namespace poseidon::launch
