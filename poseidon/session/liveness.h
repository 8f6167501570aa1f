// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_LIVENESS_H_
#define POSEIDON_SESSION_LIVENESS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/coordinator/evidence.h"
#include "poseidon/session/ending.h"
#include "poseidon/session/member.h"
#include "poseidon/session/progress_watch.h"

namespace poseidon::session {

// Whether `one` says more about who is late than `other`. Sums that are owed to this member show that only where its
// contributions are all there.
bool ShowsMore(const wire::Wait& one, const wire::Wait& other);

// Who lives, as this member sees it: it sends heartbeats, notes whom it hears, and says where nothing moves.
// In rank 0's process the coordinator judges; elsewhere the evidence (coordinator/evidence.h) ends a job whose
// coordinator is lost.
//
// Thread: the I/O executor. Lifetime: member and ending outlive it.
class Liveness {
 public:
  // `add_waits` adds the contributions and results that this member waits for, with the members that owe them.
  // `work` returns how many frames of layers the lanes beside lane 0 have moved (Lanes::work).
  Liveness(Member& member, Ending& ending, std::function<void(std::vector<wire::Wait>*)> add_waits,
           std::function<std::uint64_t()> work);
  ~Liveness();

  // The roster is known: heartbeats begin.
  void Begin();
  // The front end has called for something that others may have to answer.
  void Called() { ++calls_; }
  // Takes this into account, where this member judges for itself.
  void Weigh(const coordinator::EvidenceEvent& event);

  void OnPeerClosed(MemberId peer, const Status& reason);
  Status OnAbort(MemberId from, const wire::Abort& abort);
  // Returns the message for a peer that lives and is refused: it reads there what the verdict will say of it.
  ByteBuffer LastWords(MemberId peer, const Status& reason) const;

 private:
  void Beat();
  void SendHeartbeats();
  void ReportProgress();
  void ArmEvidenceTimer();
  void Act(const coordinator::ReportLost& lost);
  void Act(const coordinator::ReportSuspect& suspect);
  void Act(const coordinator::EndWith& end);

  Member& member_;
  Ending& ending_;
  const std::function<void(std::vector<wire::Wait>*)> add_waits_;
  const std::function<std::uint64_t()> work_of_lanes_;
  std::optional<coordinator::EvidenceState> evidence_;  // not in rank 0's process
  TimerId beat_timer_ = 0;
  TimerId evidence_timer_ = 0;
  std::map<MemberId, TimePoint> heard_at_;
  ProgressWatch progress_watch_;
  std::uint64_t calls_ = 0;
  Alive alive_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_LIVENESS_H_
