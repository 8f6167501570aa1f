// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/progress.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "poseidon/coordinator/waits.h"

namespace poseidon::coordinator {
namespace {

// A report older than this says nothing: its member moves again, or is not heard, which is another matter.
constexpr Duration kFresh = std::chrono::seconds(2);

class Judge {
 public:
  Judge(const ProgressState& state, const Standing& standing, TimePoint now)
      : state_(state), standing_(standing), now_(now) {}

  // How long nothing has moved at any member; none where one of them has not said so just now.
  std::optional<Duration> StoodStill() const {
    std::optional<Duration> quiet;
    Duration oldest{0};
    for (const Member& member : state_.members) {
      if (standing_.gone.contains(member.id)) continue;
      const auto found = state_.reports.find(member.id);
      if (found == state_.reports.end() || now_ - found->second.at > kFresh) return std::nullopt;
      // Work has stopped only as long as at the member where something moved last.
      quiet = std::min(quiet.value_or(found->second.quiet), found->second.quiet);
      oldest = std::max(oldest, now_ - found->second.at);
    }
    // What moved last may have ended the waits of a report from before, and it may have been on its way for a moment.
    return quiet && 2 * oldest <= *quiet ? quiet : std::nullopt;
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

  // "worker 0 on host a and 2 others".
  std::string Names(const std::vector<MemberId>& members) const {
    if (members.empty()) return "nobody else";
    std::string text = Name(members.front());
    if (members.size() == 2) text += " and " + Name(members.back());
    if (members.size() > 2) text += " and " + std::to_string(members.size() - 1) + " others";
    return text;
  }

  // Returns the clause that says what `missed` does meanwhile.
  std::string Doing(const WaitGraph& graph, const WaitGraph::Missed& missed) const {
    const ProgressReport* const report = Of(missed.member);
    if (missed.left) return "has left the job";
    if (report == nullptr) return "says nothing";
    if (!report->busy_with.empty()) return report->busy_with;
    if (report->blocked) {
      const auto wait = graph.WaitOf(missed.member);
      return wait ? "waits itself for " + wait->first + " from " + Names(wait->second) : "waits itself";
    }
    if (report->idle >= state_.rule.report_after()) {
      return "is alive but has used no processor for " + InSeconds(report->idle);
    }
    return "computes";
  }

  // Returns the sentence for a standstill in which nobody is missed.
  std::string Explain(const std::optional<WaitGraph::Lost>& lost, Duration still) const {
    if (lost) {
      return lost->what + " was sent by " + Name(lost->from) + " and has not arrived at " + Name(lost->at) + " for " +
             InSeconds(still) + ": a message was lost";
    }
    return "the job has stood still for " + InSeconds(still) + " and no member knows what it waits for: a message was lost";
  }

  // Returns what follows from `missed` waiting itself.
  std::string Why(const WaitGraph::Missed& missed) const {
    if (!missed.blocked) return "";
    std::string why;
    if (!missed.also.empty()) why += ", nor has " + Names(missed.also) + " brought it";
    why += "; workers push different layers or call different collectives";
    if (!missed.in_cycle) return why + ", or a message was lost";
    return why + (missed.in_doubt ? ", and it cannot be told who has left the common order"
                                  : ", and more than half of them have brought this");
  }

 private:
  const ProgressState& state_;
  const Standing& standing_;
  const TimePoint now_;
};

}  // namespace

Wait InWords(const wire::Wait& wait, const std::string& layer, bool several_models) {
  const auto of_model = [several_models](ModelId model) {
    return several_models ? " of model " + std::to_string(model.value()) : "";
  };
  Wait known{.what = "", .step = wait.step.value(), .on = wait.on};
  if (wait.what == wire::Wait::For::kCollective || wait.model == wire::kCollectiveModel) {
    if (const std::optional<wire::StepSum> sum = wire::StepSumOf(wait.layer)) {
      known.step = sum->step.value();
      known.what = "its message at the beginning of step " + std::to_string(known.step) + of_model(sum->model);
    } else {
      known.what = "its part in collective call " + std::to_string(wait.layer.value() + 1) + " (all_reduce, broadcast, barrier and the like)";
    }
    known.of = known.what;
    return known;
  }
  const std::string what = wait.what == wire::Wait::For::kFactors ? "the factors of "
                           : wait.what == wire::Wait::For::kMean  ? "the mean gradient of "
                                                                  : "the gradient of ";
  known.of = (layer.empty() ? "layer " + std::to_string(wait.layer.value()) : "layer '" + layer + "'") + " in step " +
             std::to_string(known.step) + of_model(wait.model);
  known.what = what + known.of;
  return known;
}

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
  const WaitGraph graph(state, standing);
  const std::optional<WaitGraph::Missed> missed = graph.WhoIsMissed();
  if (!missed) {
    // Nobody waits, or nobody knows for whom: then something was lost.
    const bool over = *still >= (judge.AllIdle() ? state.rule.stuck_after : state.rule.busy_limit());
    if (!judge.AnyBlocked() || !over) return judgement;
    state.ended = true;
    judgement.end = {std::nullopt, judge.Explain(graph.WhatWasLost(), *still)};
    return judgement;
  }

  const std::string doing = judge.Doing(graph, *missed);
  const std::string lacks = missed->what + ", for which " + judge.Names(missed->waiting) + " waited " + InSeconds(*still);
  // No patience helps here: who has left pushes nothing any more.
  if (missed->left) {
    state.ended = true;
    judgement.end = {missed->member,
                     "has left the job without " + lacks + ": it makes fewer steps or other calls than the others"};
    return judgement;
  }
  if (*still >= (judge.Idle(missed->member) ? state.rule.stuck_after : state.rule.busy_limit())) {
    state.ended = true;
    const std::string reason = "has not brought " + lacks + ": it " + doing + judge.Why(*missed);
    judgement.end = {missed->member, reason};
    if (missed->in_doubt) judgement.end = {std::nullopt, judge.Name(missed->member) + " " + reason};
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
