// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/progress.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace poseidon::coordinator {
namespace {

// A report older than this says nothing: its member moves again, or is not heard, which is another matter.
constexpr Duration kFresh = std::chrono::seconds(2);

// A member that is waited for, and the wait.
struct Missed {
  MemberId member;
  const Wait* wait = nullptr;
  bool left = false;
  bool blocked = false;

  // First a member that has left, because it will bring nothing; then one that is not blocked, because it holds up
  // those that are; then the earlier step.
  friend bool operator<(const Missed& a, const Missed& b) {
    return std::tuple(!a.left, a.blocked, a.wait->step, a.member) < std::tuple(!b.left, b.blocked, b.wait->step, b.member);
  }
};

class Judge {
 public:
  Judge(const ProgressState& state, const Standing& standing, TimePoint now)
      : state_(state), standing_(standing), now_(now) {}

  // How long nothing has moved at any member; none where one of them has not said so just now.
  std::optional<Duration> StoodStill() const {
    std::optional<Duration> quiet;
    for (const Member& member : state_.members) {
      if (standing_.gone.contains(member.id)) continue;
      const auto found = state_.reports.find(member.id);
      if (found == state_.reports.end() || now_ - found->second.at > kFresh) return std::nullopt;
      // Work has stopped only as long as at the member where something moved last.
      quiet = std::min(quiet.value_or(found->second.quiet), found->second.quiet);
    }
    return quiet;
  }

  std::optional<Missed> WhoIsMissed() const {
    std::optional<Missed> missed;
    for (const auto& [by, report] : state_.reports) Consider(report.waits, &missed);
    if (missed) return missed;
    // Without a program that waits in a call, all may just be computing on their way to what the coordinator lacks.
    if (AnyBlocked()) Consider(standing_.waits, &missed);
    if (missed) return missed;
    // All contributions are there: what was made of them has not arrived.
    for (const auto& [by, report] : state_.reports) {
      if (report.blocked) Consider(report.owed, &missed);
    }
    return missed;
  }

  const ProgressReport* Of(MemberId member) const {
    const auto found = state_.reports.find(member);
    return found == state_.reports.end() ? nullptr : &found->second;
  }

  bool AnyBlocked() const {
    return std::any_of(state_.reports.begin(), state_.reports.end(),
                       [](const auto& report) { return report.second.blocked; });
  }
  bool Idle(MemberId member) const {
    const ProgressReport* const report = Of(member);
    // A member that says what it is busy with may use no processor for it, and gets the longer limit.
    return report == nullptr || (report->busy_with.empty() && report->idle >= state_.rule.stuck_after);
  }
  bool AllIdle() const {
    return std::all_of(state_.members.begin(), state_.members.end(),
                       [&](const Member& member) { return Idle(member.id); });
  }

  std::string Name(MemberId member) const {
    return member.value() < state_.members.size() ? Describe(state_.members[member.value()]) : "an unknown member";
  }

  // "worker 0 on host a and 2 others": all who are held up by `missed`.
  std::string Waiting(MemberId missed) const {
    std::vector<MemberId> waiting;
    for (const auto& [member, report] : state_.reports) {
      if (member != missed && report.blocked && !standing_.gone.contains(member)) waiting.push_back(member);
    }
    for (const auto& [member, report] : state_.reports) {
      if (waiting.empty() && member != missed && !report.waits.empty()) waiting.push_back(member);
    }
    for (const MemberId member : standing_.left) {
      if (waiting.empty() && member != missed) waiting.push_back(member);
    }
    if (waiting.empty()) return "nobody else";
    std::string text = Name(waiting.front());
    if (waiting.size() == 2) text += " and " + Name(waiting.back());
    if (waiting.size() > 2) text += " and " + std::to_string(waiting.size() - 1) + " others";
    return text;
  }

  // Returns the clause that says what `missed` does meanwhile.
  std::string Doing(const Missed& missed) const {
    const ProgressReport* const report = Of(missed.member);
    if (missed.left) return "has left the job";
    if (report == nullptr) return "says nothing";
    if (!report->busy_with.empty()) return report->busy_with;
    if (report->blocked) {
      const Wait* const wait = WaitedForBy(missed.member, *report);
      return wait == nullptr ? "waits itself" : "waits itself for " + wait->what + " from " + Name(wait->on.front());
    }
    if (report->idle >= state_.rule.report_after()) {
      return "is alive but has used no processor for " + InSeconds(report->idle);
    }
    return "computes";
  }

 private:
  // Returns what `member` waits for by its own report: a contribution, else a mean. For a mean it returns the
  // contribution that the mean lacks, where another member reports that. Null where `member` reports no wait.
  const Wait* WaitedForBy(MemberId member, const ProgressReport& report) const {
    const auto of_others = [member](const Wait& wait) {
      return !wait.on.empty() && std::find(wait.on.begin(), wait.on.end(), member) == wait.on.end();
    };
    const auto lacked = std::find_if(report.waits.begin(), report.waits.end(), of_others);
    if (lacked != report.waits.end()) return &*lacked;
    const auto owed = std::find_if(report.owed.begin(), report.owed.end(), of_others);
    if (owed == report.owed.end()) return nullptr;
    for (const auto& [by, other] : state_.reports) {
      for (const Wait& wait : other.waits) {
        if (!owed->of.empty() && wait.of == owed->of && of_others(wait)) return &wait;
      }
    }
    return &*owed;
  }

  void Consider(const std::vector<Wait>& waits, std::optional<Missed>* missed) const {
    for (const Wait& wait : waits) {
      for (const MemberId member : wait.on) {
        const ProgressReport* const report = Of(member);
        const Missed one{member, &wait, standing_.left.contains(member), report != nullptr && report->blocked};
        if (!*missed || one < **missed) *missed = one;
      }
    }
  }

  const ProgressState& state_;
  const Standing& standing_;
  const TimePoint now_;
};

}  // namespace

ProgressState BeginProgress(const ProgressRule& rule, std::vector<Member> members) {
  ProgressState state;
  state.rule = rule;
  state.members = std::move(members);
  return state;
}

ProgressState Reported(ProgressState state, MemberId member, ProgressReport report) {
  state.reports.insert_or_assign(member, std::move(report));
  return state;
}

ProgressJudgement JudgeProgress(ProgressState before, const Standing& standing, TimePoint now) {
  ProgressJudgement judgement;
  judgement.state = std::move(before);
  ProgressState& state = judgement.state;
  if (state.ended) return judgement;
  const Judge judge(state, standing, now);
  const std::optional<Duration> still = judge.StoodStill();
  if (!still || *still < state.rule.report_after()) {
    // Something moved: the next standstill is remarked on from its beginning.
    state.next_remark.reset();
    return judgement;
  }
  const std::optional<Missed> missed = judge.WhoIsMissed();
  if (!missed) {
    // Nobody waits, or nobody knows for whom: then something was lost.
    const bool over = *still >= (judge.AllIdle() ? state.rule.stuck_after : state.rule.busy_limit());
    if (!judge.AnyBlocked() || !over) return judgement;
    state.ended = true;
    judgement.end = {std::nullopt, "the job has stood still for " + InSeconds(*still) +
                                       " and no member knows what it waits for: a message was lost"};
    return judgement;
  }

  const std::string doing = judge.Doing(*missed);
  const std::string lacks = missed->wait->what + ", for which " + judge.Waiting(missed->member) + " waited " + InSeconds(*still);
  // No patience helps here: who has left pushes nothing any more.
  if (missed->left) {
    state.ended = true;
    judgement.end = {missed->member,
                     "has left the job without " + lacks + ": it makes fewer steps or other calls than the others"};
    return judgement;
  }
  if (*still >= (judge.Idle(missed->member) ? state.rule.stuck_after : state.rule.busy_limit())) {
    state.ended = true;
    std::string reason = "has not brought " + lacks + ": it " + doing;
    if (missed->blocked) reason += "; workers push different layers or call different collectives, or a message was lost";
    judgement.end = {missed->member, std::move(reason)};
    return judgement;
  }

  // A member that computes longer than the others may do so in every step: no line is logged again before it takes much
  // longer than it did.
  const bool computes = !missed->blocked && doing == "computes";
  const Duration first = std::max(state.rule.say_after, computes ? 2 * state.usual : Duration{0});
  if (!state.next_remark) state.next_remark = first;
  if (*still < *state.next_remark) return judgement;
  state.next_remark = 2 * *still;
  if (computes) state.usual = std::max(state.usual, *still);
  judgement.remark = judge.Name(missed->member) + " has not brought " + lacks + " so far; it " + doing;
  return judgement;
}

}  // namespace poseidon::coordinator
