// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/evidence.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::coordinator {
namespace {

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
    state_.pending_since = state_.pending_since + absent;
  }

  void On(const PeerHeard& heard) {
    if (!Watched(heard.peer)) return;
    PeerState& peer = Of(heard.peer);
    const TimePoint at = std::min(heard.at.value_or(now_), now_);
    if (at <= peer.last_heard) return;
    const Duration silence = at - peer.last_heard;
    peer.last_heard = at;
    if (!peer.suspected || now_ - at >= state_.liveness.suspect_after()) return;
    peer.suspected = false;
    actions_.push_back(ReportSuspect{
        .peer = heard.peer,
        .heard_again = true,
        .line = Name(heard.peer) + " is heard again after " + InSeconds(silence) + " of silence"});
  }

  void On(const PeerLost& lost) {
    if (!Watched(lost.peer)) return;
    Of(lost.peer).lost = true;
    if (lost.peer == kCoordinatorHost) {
      // No verdict will come. What was seen before stays the first evidence, but for a peer's end while
      // the job forms: it may not have met this member yet, and ended because the coordinator did.
      if (state_.pending_is_unmet) state_.pending.reset();
      Note(kCoordinatorHost,
           Name(kCoordinatorHost) + ", which runs the coordinator, ended without a word");
      return End();
    }
    actions_.push_back(ReportLost{lost.peer});
    // Once this member is done a peer may leave before the word that all are done has come here.
    if (state_.own_done) return;
    Note(lost.peer, Name(lost.peer) + " ended without a word", !state_.formed);
  }

  void On(const PeerAborted& aborted) {
    if (!Watched(aborted.from)) return;
    Of(aborted.from).lost = true;  // its stream ends next, as announced
    std::optional<MemberId> culprit = aborted.culprit;
    if (culprit && !Known(*culprit)) culprit = aborted.from;
    if (aborted.from == kCoordinatorHost) {
      state_.pending = EndWith{culprit, aborted.reason};
      return End();
    }
    Note(culprit, aborted.reason);
  }

  void On(const Formed&) { state_.formed = true; }
  void On(const OwnDone&) { state_.own_done = true; }
  void On(const FinishHeard&) { state_.finished = true; }

  void On(const EvidenceTick&) {
    state_.last_look = now_;
    const LivenessRule& rule = state_.liveness;
    for (const Member& member : state_.members) {
      PeerState& peer = Of(member.id);
      if (member.id == state_.self || peer.lost || peer.suspected) continue;
      const Duration silence = now_ - peer.last_heard;
      if (silence < rule.suspect_after()) continue;
      peer.suspected = true;
      actions_.push_back(
          ReportSuspect{.peer = member.id,
                        .heard_again = false,
                        .line = Describe(member) + " has been silent for " + InSeconds(silence)});
    }
    const Duration silence = now_ - Of(kCoordinatorHost).last_heard;
    if (silence >= rule.dead_after_silence()) {
      Note(kCoordinatorHost,
           Name(kCoordinatorHost) + ", which runs the coordinator, has been silent for " +
               InSeconds(silence) + ": it is frozen, or its host or network is gone");
      return End();
    }
    if (state_.pending && now_ >= state_.pending_since + kVerdictWait) End();
  }

 private:
  bool Known(MemberId member) const { return member.value() < state_.members.size(); }
  bool Watched(MemberId peer) { return Known(peer) && peer != state_.self && !Of(peer).lost; }
  PeerState& Of(MemberId peer) { return state_.peers[peer.value()]; }
  std::string Name(MemberId peer) const { return Describe(state_.members[peer.value()]); }

  // Only the first evidence counts; the rest are its echoes.
  void Note(std::optional<MemberId> culprit, std::string reason, bool unmet = false) {
    if (state_.pending) return;
    state_.pending = EndWith{culprit, std::move(reason)};
    state_.pending_since = now_;
    state_.pending_is_unmet = unmet;
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
  }
  return weighing.Take();
}

std::optional<TimePoint> NextDeadline(const EvidenceState& state) {
  if (state.finished || state.ended) return std::nullopt;
  const LivenessRule& rule = state.liveness;
  TimePoint next = state.last_look + rule.heartbeat_interval();
  for (const Member& member : state.members) {
    const PeerState& peer = state.peers[member.id.value()];
    if (member.id == state.self || peer.lost) continue;
    if (!peer.suspected) {
      next = std::min(next, peer.last_heard + rule.suspect_after());
    } else if (member.id == kCoordinatorHost) {
      next = std::min(next, peer.last_heard + rule.dead_after_silence());
    }
  }
  return state.pending ? std::min(next, state.pending_since + kVerdictWait) : next;
}

}  // namespace poseidon::coordinator
