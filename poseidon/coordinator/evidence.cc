// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/evidence.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/coordinator/silence.h"

namespace poseidon::coordinator {
namespace {

// When the coordinator's verdict on what was noted should have come; none where nothing was, or where the coordinator's
// own silence will explain it.
std::optional<TimePoint> VerdictDue(const EvidenceState& state) {
  const PeerState& host = state.peers[kCoordinatorHost.value()];
  if (!state.pending || (state.pending_is_unmet && host.suspected && !host.lost)) return std::nullopt;
  return state.pending_since + kVerdictWait;
}

// Whether two members watch each other while all is well.
bool AreNeighbours(const EvidenceState& state, MemberId a, MemberId b) {
  const std::size_t members = state.members.size();
  if (members <= state.liveness.most_in_pairs || a == kCoordinatorHost || b == kCoordinatorHost) return true;
  const std::size_t ahead = (b.value() + members - a.value()) % members;
  return std::has_single_bit(ahead) || std::has_single_bit(members - ahead);
}

// One step: the state under change, and what was decided.
class Weighing {
 public:
  Weighing(EvidenceState state, TimePoint now) : state_(std::move(state)), now_(now) {}
  EvidenceTransition Take() { return {std::move(state_), std::move(actions_)}; }
  bool over() const { return state_.finished || state_.ended.has_value(); }

  // As in membership.cc: what happened while this member was suspended waits unread, and a verdict
  // may be among it.
  void ForgiveOwnAbsence() {
    const Duration absent = now_ - state_.last_event;
    state_.last_event = now_;
    if (absent <= state_.liveness.own_absence()) return;
    for (PeerState& peer : state_.peers) peer.last_heard = peer.last_heard + absent;
    for (auto& link : state_.silent_links) link.second = link.second + absent;
    state_.pending_since = state_.pending_since + absent;
  }

  void On(const PeerHeard& heard) {
    if (!Watched(heard.peer)) return;
    PeerState& peer = Of(heard.peer);
    const TimePoint at = std::min(heard.at.value_or(now_), now_);
    if (at <= peer.last_heard) return;
    const Duration silence = at - peer.last_heard;
    peer.last_heard = at;
    // A sign of life may be noted late and then be itself too old to lift the suspicion.
    if (!peer.suspected || now_ - at >= state_.liveness.suspect_after()) return;
    peer.suspected = false;
    actions_.push_back(ReportSuspect{
        .peer = heard.peer,
        .heard_again = true,
        .line = Name(heard.peer) + " is heard again after " + InSeconds(silence) + " of silence"});
  }

  void On(const Waiting& waiting) { state_.waits_in_vain = waiting.in_vain; }

  void On(const PeerLost& lost) {
    if (!Watched(lost.peer)) return;
    Of(lost.peer).lost = true;
    if (lost.peer == kCoordinatorHost) return OnCoordinatorLost(lost.why);
    actions_.push_back(ReportLost{lost.peer, lost.why});
    // Once this member is done a peer may leave before the message that all are done has come here.
    if (state_.own_done) return;
    state_.lost.push_back(lost.peer);
    const bool first = !state_.pending.has_value();
    Note(lost.peer, DescribeLoss(Name(lost.peer), Name(state_.self), lost.why));
    if (first) state_.pending_is_unmet = !state_.formed;
  }

  // No verdict comes any more. What a peer said before holds. Where this member has lost another peer
  // just before, one event took both, and others may have seen the ends in another order: all name
  // the coordinator's host, unless a peer has heard the verdict, which has kVerdictWait to say so.
  // A peer that ended before the job had formed may have ended because the coordinator did.
  void OnCoordinatorLost(const Status& why) {
    if (state_.pending && state_.pending_is_told) return End();
    const bool alone = !state_.pending || state_.pending_is_unmet;
    std::string reason =
        DescribeLoss(Name(kCoordinatorHost) + ", which runs the coordinator,", Name(state_.self), why);
    if (!alone) {
      const std::set<MemberId> others(state_.lost.begin(), state_.lost.end());
      reason += "; so was " + DescribeAll(state_.members, others);
    }
    state_.pending = EndWith{kCoordinatorHost, std::move(reason)};
    state_.pending_since = now_;
    if (alone) End();
  }

  void On(const PeerSuspected& suspected) {
    if (!Known(suspected.by) || !Known(suspected.about) || suspected.by == suspected.about) return;
    const auto link = std::pair(suspected.by, suspected.about);
    if (suspected.heard_again) {
      state_.silent_links.erase(link);
    } else {
      state_.silent_links.emplace(link, now_);
    }
  }

  void On(const PeerAborted& aborted) {
    if (!Watched(aborted.from)) return;
    std::optional<MemberId> culprit = aborted.culprit;
    if (culprit && !Known(*culprit)) culprit = aborted.from;
    // The sender names no culprit and does not hear this member: who hears whom decides.
    if (!culprit && state_.silent_links.contains({aborted.from, state_.self})) {
      // Another member may have weighed that before and left already: then its links are no longer here to be weighed.
      const bool weighed = state_.pending && state_.pending->culprit;
      culprit = weighed ? state_.pending->culprit : BlameForSilence(OwnHearing(), state_.liveness).culprit;
    }
    Of(aborted.from).lost = true;  // its stream ends next, as announced
    const bool verdict_is_lost = Of(kCoordinatorHost).lost;
    if (aborted.from == kCoordinatorHost || verdict_is_lost) {
      state_.pending = EndWith{culprit, aborted.reason, aborted.code};
      return End();
    }
    if (!state_.pending) state_.pending_is_told = true;
    Note(culprit, aborted.reason, aborted.code);
  }

  void On(const Formed&) { state_.formed = true; }
  void On(const OwnDone&) { state_.own_done = true; }
  void On(const FinishHeard&) { state_.finished = true; }

  void On(const EvidenceTick&) {
    state_.last_look = now_;
    const LivenessRule& rule = state_.liveness;
    for (const Member& member : state_.members) {
      PeerState& peer = Of(member.id);
      if (member.id == state_.self || peer.lost || peer.suspected || !Watches(state_, member.id)) continue;
      const Duration silence = now_ - peer.last_heard;
      if (silence < rule.suspect_after()) continue;
      // Reported and not judged: the coordinator's verdict counts, and it needs the reports of all.
      peer.suspected = true;
      actions_.push_back(
          ReportSuspect{.peer = member.id,
                        .heard_again = false,
                        .line = Describe(member) + " has been silent for " + InSeconds(silence)});
    }
    // A silent coordinator gives no verdict: of all silences this one alone is judged here.
    const PeerState& host = Of(kCoordinatorHost);
    if (!host.lost && now_ - host.last_heard >= rule.dead_after_silence()) {
      // A peer that ended before the job had formed gave up on the same silence, somewhat earlier.
      if (state_.pending_is_unmet) state_.pending.reset();
      Blame blame = BlameForSilence(OwnHearing(), rule);
      Note(blame.culprit, std::move(blame.reason));
      return End();
    }
    const std::optional<TimePoint> due = VerdictDue(state_);
    if (due && now_ >= *due) End();
  }

  // Others have not sent this member heartbeats so far. They do once they are alarmed, which is in a moment; whom it does not hear by then it
  // reports well before the verdict, for which its report counts.
  void SeeWhetherToBeAlarmed() {
    if (state_.members.size() <= state_.liveness.most_in_pairs) return;  // all watch all anyhow
    const bool silence = !state_.silent_links.empty() || std::ranges::any_of(state_.peers, [](const PeerState& peer) {
      return peer.suspected && !peer.lost;
    });
    if (const bool was = std::exchange(state_.alarmed, silence || state_.waits_in_vain); was || !state_.alarmed) return;
    const LivenessRule& rule = state_.liveness;
    const Duration patience =
        std::min(rule.suspect_after(), rule.dead_after_silence() - rule.suspect_after() - rule.heartbeat_interval());
    for (const Member& member : state_.members) {
      if (AreNeighbours(state_, state_.self, member.id)) continue;
      PeerState& peer = Of(member.id);
      peer.last_heard = std::max(peer.last_heard, now_ + (patience - rule.suspect_after()));
    }
  }

 private:
  bool Known(MemberId member) const { return member.value() < state_.members.size(); }
  bool Watched(MemberId peer) { return Known(peer) && peer != state_.self && !Of(peer).lost; }
  PeerState& Of(MemberId peer) { return state_.peers[peer.value()]; }
  std::string Name(MemberId peer) const { return Describe(state_.members[peer.value()]); }

  // A member reports a silence once it has lasted suspect_after, so that long it had lasted when the report came.
  Hearing OwnHearing() {
    Hearing hearing{.self = state_.self, .members = state_.members, .silence = {}};
    for (const Member& member : state_.members) {
      const PeerState& peer = Of(member.id);
      const bool here = member.id != state_.self && !peer.lost;
      hearing.silence.push_back(here ? std::optional(now_ - peer.last_heard) : std::nullopt);
    }
    const Duration before = state_.liveness.suspect_after();
    for (const auto& [link, since] : state_.silent_links) {
      hearing.reported.emplace(link, before + (now_ - since));
    }
    return hearing;
  }

  // Keeps the first evidence; everything later follows from the same event.
  void Note(std::optional<MemberId> culprit, std::string reason, StatusCode code = StatusCode::kUnavailable) {
    if (state_.pending) return;
    state_.pending = EndWith{culprit, std::move(reason), code};
    state_.pending_since = now_;
  }
  void End() {
    state_.ended = state_.pending;
    actions_.push_back(*state_.ended);
  }

  EvidenceState state_;
  const TimePoint now_;
  std::vector<EvidenceAction> actions_;
};

}  // namespace

EvidenceState BeginEvidence(MemberId self, std::vector<Member> members,
                            const LivenessRule& liveness, TimePoint now) {
  POSEIDON_CHECK(self != kCoordinatorHost && self.value() < members.size(),
                 "evidence is weighed by members other than the coordinator's host");
  EvidenceState state;
  state.self = self;
  state.liveness = liveness;
  state.peers.assign(members.size(), PeerState{});
  for (PeerState& peer : state.peers) peer.last_heard = now;
  state.members = std::move(members);
  state.last_event = now;
  state.last_look = now;
  return state;
}

EvidenceTransition Weigh(EvidenceState state, const EvidenceEvent& event, TimePoint now) {
  Weighing weighing(std::move(state), now);
  if (!weighing.over()) {
    weighing.ForgiveOwnAbsence();
    std::visit([&](const auto& e) { weighing.On(e); }, event);
    weighing.SeeWhetherToBeAlarmed();
  }
  return weighing.Take();
}

bool Watches(const EvidenceState& state, MemberId peer) {
  return state.alarmed || AreNeighbours(state, state.self, peer);
}

std::optional<TimePoint> NextDeadline(const EvidenceState& state) {
  if (state.finished || state.ended) return std::nullopt;
  const LivenessRule& rule = state.liveness;
  TimePoint next = state.last_look + rule.heartbeat_interval();
  for (const Member& member : state.members) {
    const PeerState& peer = state.peers[member.id.value()];
    if (member.id == state.self || peer.lost || !Watches(state, member.id)) continue;
    if (!peer.suspected) {
      next = std::min(next, peer.last_heard + rule.suspect_after());
    } else if (member.id == kCoordinatorHost) {
      next = std::min(next, peer.last_heard + rule.dead_after_silence());
    }
  }
  return std::min(next, VerdictDue(state).value_or(next));
}

}  // namespace poseidon::coordinator
