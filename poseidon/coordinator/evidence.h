// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_COORDINATOR_EVIDENCE_H_
#define POSEIDON_COORDINATOR_EVIDENCE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "poseidon/coordinator/membership.h"

// Decides at a member other than the coordinator's host whom to blame for what the member sees, so that
// all members blame the same one: the coordinator's verdict counts, if it comes. Pure, like membership.h.
//
// A lost peer is reported and the verdict awaited for kVerdictWait; only then the member's own,
// first evidence counts. Where the coordinator itself is silent or lost no verdict comes: then the
// members judge, each with the same functions (silence.h) and by what they have reported to each other.
//
// In a large job a member watches the coordinator's host and the members at distances of 1, 2, 4, ... on the ring of member ids,
// either way, so that heartbeats grow with P log P and not with its square. While anybody is silent, or this member waits in vain, it is
// alarmed: then it watches all, and they hear it, as in a small job. Whom to blame is so decided by who hears whom, in any job.
namespace poseidon::coordinator {

inline constexpr MemberId kCoordinatorHost{0};
inline constexpr Duration kVerdictWait = std::chrono::milliseconds(200);

// ---- events, as one member sees them

// Any message of the peer arrived, `at` some moment not later than now (none: now).
struct PeerHeard {
  MemberId peer;
  std::optional<TimePoint> at = {};
};
// The stream from the peer ended, and no ABORT or LEAVE came before.
struct PeerLost {
  MemberId peer;
  Status why = {};  // as the connection said; OK: not known
};
// `by` says that it hears nothing from `about`, or hears it again.
struct PeerSuspected {
  MemberId by;
  MemberId about;
  bool heard_again = false;
};
// Whether nothing moves at this member for want of what others owe it.
struct Waiting {
  bool in_vain = false;
};
// ABORT arrived: from the coordinator's host it is the verdict, from another peer evidence.
struct PeerAborted {
  MemberId from;
  std::optional<MemberId> culprit;
  std::string reason;
  StatusCode code = StatusCode::kUnavailable;
};
// The coordinator said that all members have met.
struct Formed {};
// This member has finished its part.
struct OwnDone {};
// The coordinator said that everybody is done: streams may end now.
struct FinishHeard {};
struct EvidenceTick {};

using EvidenceEvent =
    std::variant<PeerHeard, PeerLost, PeerSuspected, Waiting, PeerAborted, Formed, OwnDone, FinishHeard, EvidenceTick>;

// ---- actions

// Tell the coordinator that the peer's stream ended.
struct ReportLost {
  MemberId peer;
  Status why = {};
  friend bool operator==(const ReportLost&, const ReportLost&) = default;
};
// Log the line and send it to all members.
struct ReportSuspect {
  MemberId peer;
  bool heard_again = false;
  std::string line;
  friend bool operator==(const ReportSuspect&, const ReportSuspect&) = default;
};
// End: send ABORT with this to everybody, fail what waits, leave. Given once.
struct EndWith {
  std::optional<MemberId> culprit;
  std::string reason;
  StatusCode code = StatusCode::kUnavailable;  // of a death; an ABORT brings its own
  friend bool operator==(const EndWith&, const EndWith&) = default;
};

using EvidenceAction = std::variant<ReportLost, ReportSuspect, EndWith>;

struct PeerState {
  bool lost = false;
  bool suspected = false;
  TimePoint last_heard;
  friend bool operator==(const PeerState&, const PeerState&) = default;
};

// A value; make one with BeginEvidence when the roster is known, change it with Weigh only.
struct EvidenceState {
  MemberId self;
  LivenessRule liveness;
  std::vector<Member> members;
  std::vector<PeerState> peers;  // by member id; one's own is unused
  TimePoint last_event;          // when this member last ran
  TimePoint last_look;           // when it last got an EvidenceTick
  bool formed = false;
  bool own_done = false;
  bool finished = false;
  bool waits_in_vain = false;
  bool alarmed = false;
  std::optional<EndWith> pending;  // the first evidence, while the verdict is awaited
  TimePoint pending_since;
  bool pending_is_unmet = false;  // the end of a peer that may not have met this member
  bool pending_is_told = false;   // by a peer's ABORT
  std::vector<MemberId> lost;     // peers whose streams ended without an ABORT, in that order
  // Links on which the first does not hear the second, by what it says, and since when.
  std::map<std::pair<MemberId, MemberId>, TimePoint> silent_links;
  std::optional<EndWith> ended;

  friend bool operator==(const EvidenceState&, const EvidenceState&) = default;
};

struct EvidenceTransition {
  EvidenceState state;
  std::vector<EvidenceAction> actions;
};

EvidenceState BeginEvidence(MemberId self, std::vector<Member> members,
                            const LivenessRule& liveness, TimePoint now);
EvidenceTransition Weigh(EvidenceState state, const EvidenceEvent& event, TimePoint now);
// Whether this member and `peer` send each other heartbeats now; `peer` is another one. Of two members that are not alarmed both say the same.
bool Watches(const EvidenceState& state, MemberId peer);
// When the next EvidenceTick is due, if nothing else happens.
std::optional<TimePoint> NextDeadline(const EvidenceState& state);

}  // namespace poseidon::coordinator

#endif  // POSEIDON_COORDINATOR_EVIDENCE_H_
