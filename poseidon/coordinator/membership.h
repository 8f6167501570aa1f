// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_COORDINATOR_MEMBERSHIP_H_
#define POSEIDON_COORDINATOR_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "poseidon/base/executor.h"
#include "poseidon/base/status.h"
#include "poseidon/base/strong_id.h"

// Who is in the job, who is suspected, and who is to blame when it ends: a pure function from a
// state, an event and the time to the next state and what to do. The coordinator (coordinator.h)
// turns messages and timers into events and actions into messages.
//
// A member is found dead in one of four ways, and the first of them ends the job with one verdict:
// its stream ends without an ABORT (it was killed), it says so itself (ABORT), another member says
// so, or somebody is silent for too long (frozen, or cut off). Silence is first named, then, almost
// `dead_after` later, a verdict (silence.h). Everything that arrives after the verdict is an echo.
namespace poseidon::coordinator {

// The member in whose process the coordinator is.
inline constexpr MemberId kHost{0};

enum class Role : std::uint8_t { kWorker = 1, kServer = 2 };

// A stream that a joining process came on, before it is a member; any number unique in the job.
using ConnectionId = StrongId<struct ConnectionTag, std::uint64_t>;

// The limits on silence, from the one number that a user gives.
struct LivenessRule {
  Duration dead_after = std::chrono::seconds(30);
  // In a job of more members not all of them watch each other (evidence.h).
  std::size_t most_in_pairs = 32;
  // Every member sends those that watch it a heartbeat this often, if nothing else: 0.5 s, or less for a short
  // dead_after.
  Duration heartbeat_interval() const;
  // A member that was silent this long is named: 4 s, or less for a short dead_after. Two heartbeats
  // at least before the verdict: by then whoever stopped hearing it at the same time has said so.
  Duration suspect_after() const;
  // A member that was silent this long is dead. Its last sign of life may be just as old as its
  // freezing, so this is shorter than dead_after by what ending the job may take.
  Duration dead_after_silence() const;
  // An observer that itself did not run for this long (its process or host was suspended) does not
  // hold the silence against the others.
  Duration own_absence() const { return 2 * heartbeat_interval(); }

  friend bool operator==(const LivenessRule&, const LivenessRule&) = default;
};

struct MembershipOptions {
  std::uint16_t workers = 1;
  std::uint16_t servers = 0;
  Generation generation{1};
  std::uint16_t protocol_version = 1;
  std::string strategy = "poseidon";  // sync/strategy.h, which all members have
  Duration form_within =
      std::chrono::seconds(120);  // everybody has joined by then, or the job ends
  LivenessRule liveness;

  friend bool operator==(const MembershipOptions&, const MembershipOptions&) = default;
};

// A process as it introduced itself.
struct JoinRequest {
  ConnectionId connection;
  Role role = Role::kWorker;
  std::optional<Rank> rank = {};   // where the launcher chose one; of a server: its number
  bool hosts_coordinator = false;  // it runs the coordinator: it becomes rank 0
  std::string host = {};           // the machine's name, for people and for placing ranks
  std::string address = {};        // where the others reach it, numeric
  std::uint16_t port = 0;
  std::uint16_t protocol_version = 1;
  std::string machine = {};  // whose memory it could share; empty: nobody's
  std::string strategy = "poseidon";
  double bandwidth = 0;  // bytes/s of its link that it may use, each way; 0: all

  friend bool operator==(const JoinRequest&, const JoinRequest&) = default;
};

// A process with its place. Workers come first in member order, by rank; servers after, by shard.
struct Member {
  MemberId id;
  Role role = Role::kWorker;
  Rank rank;                // of a worker
  std::uint16_t shard = 0;  // of a server; a worker's shard, where workers host them, is its rank
  ConnectionId connection;
  std::string host;
  std::string address;
  std::uint16_t port = 0;
  std::string machine = {};

  friend bool operator==(const Member&, const Member&) = default;
};

// "worker 2 on host b", "server 1 on host c".
std::string Describe(const Member& member);
// "1.5 s".
std::string InSeconds(Duration duration);
// "worker 2 on host b was lost: the connection to 10.0.0.2:4000 was reset, as worker 1 on host a saw":
// why the connection of `by` to `lost` ended.
std::string DescribeLoss(const std::string& lost, const std::string& by, const Status& why);

// ---- events

struct Joined {
  JoinRequest request;
};
// The stream of a process that had joined ended before everybody was welcomed.
struct LeftEarly {
  ConnectionId connection;
  std::string how = "ended";  // or what else became of it
  Status why = {};  // as the connection said; OK: not known
};
// The member has connected to its peers, agreed on the layers and can begin.
struct Ready {
  MemberId member;
};
// Any message of the member arrived, `at` some moment not later than now (none: now); heartbeats
// see to it that one does.
struct Heard {
  MemberId member;
  std::optional<TimePoint> at = {};
};
// `from` saw the stream of `member` end without an ABORT before it; from is member 0 where the
// coordinator saw it itself.
struct Lost {
  MemberId member;
  MemberId from;
  Status why = {};  // the error of `from`'s connection; OK: not known
};
// ABORT arrived. Without a culprit nobody failed (a user's interrupt).
struct Aborted {
  MemberId from;
  std::optional<MemberId> culprit;
  std::string reason;
  bool names = false;  // the reason is a sentence that names whom it is about
};
// `by` has heard nothing from `about` for suspect_after on the link between them, or hears it
// again.
struct Suspected {
  MemberId by;
  MemberId about;
  bool heard_again = false;
};
// The member has finished its part; it may leave, but should stay until FinishAll.
struct Done {
  MemberId member;
};
// Time has passed; to be given when NextDeadline is reached, or oftener.
struct Tick {};

using Event = std::variant<Joined, LeftEarly, Ready, Heard, Lost, Aborted, Suspected, Done, Tick>;

// ---- actions

// Tell the process that it cannot join, and close.
struct Refuse {
  ConnectionId connection;
  std::string reason;
  friend bool operator==(const Refuse&, const Refuse&) = default;
};
// Everybody is there: send each its id, the generation and the roster (the state's members).
struct WelcomeAll {
  friend bool operator==(const WelcomeAll&, const WelcomeAll&) = default;
};
// Everybody is ready: step 0 may begin.
struct StartAll {
  friend bool operator==(const StartAll&, const StartAll&) = default;
};
// Log this: a member is silent, or is heard again.
struct NameSuspect {
  MemberId member;
  bool heard_again = false;
  bool tell = false;  // the coordinator itself does not hear it: all members are to know
  std::string line;  // "worker 2 on host b has been silent for 4.0 s"
  friend bool operator==(const NameSuspect&, const NameSuspect&) = default;
};
// The verdict, given once: send ABORT with it to every member and every joined connection, and end.
struct AbortAll {
  std::optional<MemberId> culprit;
  std::string reason;  // one sentence that names the culprit
  friend bool operator==(const AbortAll&, const AbortAll&) = default;
};
// All workers are done: ask everybody to leave.
struct FinishAll {
  friend bool operator==(const FinishAll&, const FinishAll&) = default;
};

using Action = std::variant<Refuse, WelcomeAll, StartAll, NameSuspect, AbortAll, FinishAll>;

// ---- state

enum class Phase : std::uint8_t {
  kForming,    // processes join
  kPreparing,  // all are welcomed, not all are ready
  kRunning,
  kFinished,  // all workers are done
  kEnded,     // a verdict was given
};

struct MemberState {
  bool ready = false;
  bool done = false;
  bool left = false;  // its stream ended after it was done
  bool suspected = false;
  TimePoint last_heard;
  friend bool operator==(const MemberState&, const MemberState&) = default;
};

// A value; make one with BeginMembership, change it with Next only.
struct MembershipState {
  MembershipOptions options;
  Phase phase = Phase::kForming;
  TimePoint began;
  TimePoint last_event;               // when the observer last ran
  TimePoint last_look;                // when it last got a Tick
  std::vector<JoinRequest> joined;    // in order of arrival, while forming
  std::vector<Member> members;        // the roster, by member id, from the welcome on
  double bandwidth = 0;               // the least that one of them may use of its link, bytes/s; 0: nobody is held
  std::vector<MemberState> liveness;  // by member id
  // Links on which one end does not hear the other: (by, about), and since when.
  std::map<std::pair<MemberId, MemberId>, TimePoint> silent_links;
  std::optional<AbortAll> verdict;

  friend bool operator==(const MembershipState&, const MembershipState&) = default;
};

struct Transition {
  MembershipState state;
  std::vector<Action> actions;
  std::string reason;  // why, in words; empty where nothing was decided
};

MembershipState BeginMembership(const MembershipOptions& options, TimePoint now);
// The events of a member unknown to the roster change nothing. `now` never goes back.
Transition Next(MembershipState state, const Event& event, TimePoint now);
// When the next Tick is due, if nothing else happens; none in a phase that waits for nothing.
std::optional<TimePoint> NextDeadline(const MembershipState& state);

// The roster of a complete set of joined processes: the coordinator's host process is rank 0,
// requested ranks are granted, the other workers fill the gaps host by host, hosts and the workers
// of one host in order of arrival. Servers follow, by the number each asked for, else in the same
// order.
std::vector<Member> AssignMembers(const std::vector<JoinRequest>& joined, std::uint16_t workers);

}  // namespace poseidon::coordinator

#endif  // POSEIDON_COORDINATOR_MEMBERSHIP_H_
