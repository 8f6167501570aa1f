// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/ending.h"

#include <algorithm>
#include <vector>

#include "tools/launch/verdict.h"

namespace poseidon::launch {

std::chrono::steady_clock::duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

void Ending::Within(Clock::duration time) { At(Clock::now() + time); }

void Ending::At(Clock::time_point deadline) {
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
    const Clock::time_point now = Clock::now();
    if (member.saving() && !IsStuck(records, place) && saving_deadline_ && now < *saving_deadline_) {
      // Of a question that is open already, its own moment: another timer may have brought us here before that.
      const Clock::time_point answers_by = member.Ask() + FromSeconds(options_.answer_seconds);
      if (now < answers_by) {
        At(std::min(answers_by, *saving_deadline_));
        continue;
      }
    }
    if (member.spared_until() && now < *member.spared_until()) {
      At(*member.spared_until());
    } else {
      member.Kill();
    }
  }
}

}  // namespace poseidon::launch
