// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/liveness.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "poseidon/base/check.h"

namespace poseidon::session {

Liveness::Liveness(Member& member, Ending& ending, std::function<void(std::vector<wire::Wait>*)> add_waits,
                   std::function<std::uint64_t()> work)
    : member_(member),
      ending_(ending),
      add_waits_(std::move(add_waits)),
      work_of_lanes_(std::move(work)),
      progress_watch_(member.options.progress.stuck_after, member.options.liveness.own_absence()) {}

Liveness::~Liveness() {
  member_.Cancel(beat_timer_);
  member_.Cancel(evidence_timer_);
}

void Liveness::Begin() {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (member_.coordinator == nullptr) {
    std::vector<coordinator::Member> all;
    for (std::size_t i = 0; i < member_.roster.size(); ++i) all.push_back(EntryOf(member_.roster, i));
    evidence_ = coordinator::BeginEvidence(member_.self, std::move(all), member_.options.liveness, member_.env.io.now());
    ArmEvidenceTimer();
  }
  Beat();
}

bool ShowsMore(const wire::Wait& one, const wire::Wait& other) {
  return std::pair(one.what == wire::Wait::For::kMean, one.step) < std::pair(other.what == wire::Wait::For::kMean, other.step);
}

// ---- who lives

// Heartbeats leave from the I/O executor, so they survive long compute; what came in since the last
// beat counts as a sign of life.
void Liveness::Beat() {
  if (member_.phase == Phase::kEnded) return;
  SendHeartbeats();
  for (const MemberId peer : member_.mesh.peers()) {
    const TimePoint last = member_.mesh.last_received(peer);
    // No bytes since the last beat is no sign of life.
    if (last == heard_at_[peer]) continue;
    heard_at_[peer] = last;
    if (member_.coordinator) {
      member_.coordinator->OnHeard(peer, last);
    } else {
      Weigh(coordinator::PeerHeard{peer, last});
    }
    if (member_.phase == Phase::kEnded) return;
  }
  ReportProgress();
  beat_timer_ =
      member_.env.io.PostAfter(member_.options.liveness.heartbeat_interval(), alive_.Guard([this] { Beat(); }));
}

void Liveness::SendHeartbeats() {
  for (const MemberId peer : member_.mesh.peers()) {
    if (evidence_ && !coordinator::Watches(*evidence_, peer)) continue;
    messaging::Outgoing beat;
    beat.header.type = wire::FrameType::kHeartbeat;
    beat.priority = messaging::kControlPriority;
    member_.mesh.Send(peer, std::move(beat));
  }
}

// A member at which nothing moves reports to the coordinator what it waits for; see coordinator/progress.h.
void Liveness::ReportProgress() {
  // Before a job runs, Formation's own limit says who holds up the start.
  if (member_.roster.size() < 2 || (member_.phase != Phase::kRunning && member_.phase != Phase::kLeaving)) return;
  const auto used = member_.env.processor_time ? std::optional(member_.env.processor_time()) : std::nullopt;
  // Looked at with every beat, also while all is well: a longer gap between two looks means that this member itself was
  // suspended. Calls count as work too: a program that goes on calling has not stopped.
  progress_watch_.Look({member_.env.io.now(), member_.mesh.traffic().work() + work_of_lanes_() + calls_, used});
  const bool quiet = progress_watch_.quiet() > Duration{0};
  if (quiet && member_.env.children_processor_time) progress_watch_.LookAtChildren(member_.env.children_processor_time());
  if (progress_watch_.quiet() < member_.options.progress.report_after()) return Weigh(coordinator::Waiting{false});
  wire::Progress progress{.quiet_seconds = ToSeconds(progress_watch_.quiet()),
                          .idle_seconds = ToSeconds(progress_watch_.idle())};
  if (member_.env.front_end != nullptr) {
    progress.blocked = member_.env.front_end->blocked();
    progress.busy_with = member_.env.front_end->busy_with();
  }
  add_waits_(&progress.waits);
  Weigh(coordinator::Waiting{!progress.waits.empty()});
  if (member_.phase == Phase::kEnded) return;
  std::stable_sort(progress.waits.begin(), progress.waits.end(), ShowsMore);
  if (progress.waits.size() > wire::kMaxWaits) progress.waits.resize(wire::kMaxWaits);
  member_.SendTo(kCoordinatorMember, progress);
}

ByteBuffer Liveness::LastWords(MemberId peer, const Status& reason) const {
  return WordsOfLoss(member_.mesh.generation(), member_.roster, member_.self, peer, reason);
}

void Liveness::OnPeerClosed(MemberId peer, const Status& reason) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (member_.phase == Phase::kEnded) return;
  if (member_.coordinator) {
    member_.coordinator->OnLost(peer, member_.self, reason);
  } else {
    Weigh(coordinator::PeerLost{peer, reason});
  }
}

Status Liveness::OnAbort(MemberId from, const wire::Abort& abort) {
  POSEIDON_ASSERT_ON(member_.env.io);
  // The mesh drops frames of another generation, but not control messages, so that is checked here.
  if (abort.generation != member_.mesh.generation()) return OkStatus();
  if (member_.coordinator) return member_.coordinator->OnMessage(from, abort);
  const auto culprit = abort.culprit == kNoCulprit
                           ? std::nullopt
                           : std::optional(MemberId(static_cast<std::uint16_t>(abort.culprit)));
  Weigh(coordinator::PeerAborted{from, culprit, abort.reason, static_cast<StatusCode>(abort.code)});
  return OkStatus();
}

void Liveness::Weigh(const coordinator::EvidenceEvent& event) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (!evidence_ || member_.phase == Phase::kEnded) return;
  const bool was_alarmed = evidence_->alarmed;
  coordinator::EvidenceTransition next =
      coordinator::Weigh(*std::exchange(evidence_, std::nullopt), event, member_.env.io.now());
  evidence_ = std::move(next.state);
  // Those who have not heard this member so far wait for it from now on.
  if (evidence_->alarmed && !was_alarmed) SendHeartbeats();
  for (const coordinator::EvidenceAction& action : next.actions) {
    std::visit([this](const auto& what) { Act(what); }, action);
  }
  ArmEvidenceTimer();
}

void Liveness::Act(const coordinator::ReportLost& lost) {
  member_.SendTo(kCoordinatorMember, wire::Suspect{.about = lost.peer,
                                                   .lost = true,
                                                   .code = static_cast<std::uint8_t>(lost.why.code()),
                                                   .reason = lost.why.message()});
}

void Liveness::Act(const coordinator::ReportSuspect& suspect) {
  member_.env.log.Log(LogLevel::kWarning, suspect.line);
  // To all and not to the coordinator alone: where it is lost, each member judges by who hears whom (silence.h).
  for (const MemberId peer : member_.mesh.peers()) {
    member_.SendTo(peer, wire::Suspect{.about = suspect.peer, .heard_again = suspect.heard_again});
  }
}

void Liveness::Act(const coordinator::EndWith& end) {
  const Status reason(end.code, end.reason, StatusScope::kJob, CulpritOf(end.culprit));
  member_.SendAbort(reason);
  ending_.End(reason);
}

void Liveness::ArmEvidenceTimer() {
  member_.Cancel(evidence_timer_);
  if (!evidence_ || member_.phase == Phase::kEnded) return;
  const std::optional<TimePoint> due = coordinator::NextDeadline(*evidence_);
  if (!due) return;
  evidence_timer_ = member_.env.io.PostAfter(std::max(Duration{0}, *due - member_.env.io.now()), alive_.Guard([this] {
                                        evidence_timer_ = 0;
                                        Weigh(coordinator::EvidenceTick{});
                                      }));
}

}  // namespace poseidon::session
