// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_MEMBER_H_
#define POSEIDON_SESSION_MEMBER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/base/strong_id.h"
#include "poseidon/coordinator/coordinator.h"
#include "poseidon/messaging/budget.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/session/node_options.h"
#include "poseidon/sync/topology.h"
#include "poseidon/transport/transport.h"
#include "poseidon/wire/messages.h"

namespace poseidon::session {

inline constexpr MemberId kCoordinatorMember{0};

// How far this member has come. Only forward, and to kEnded from everywhere.
enum class Phase : std::uint8_t { kNew, kJoining, kConnecting, kReady, kRunning, kLeaving, kEnded };

// The roster's entry at `place` as the coordinator knows it. Servers are behind the workers, by shard.
coordinator::Member EntryOf(std::span<const wire::RosterEntry> roster, std::size_t place);
// Checks that the roster is a job's, and that this member is the one it is welcomed as; else kDataLoss. Pre: the
// welcome's member is in the roster.
Status CheckRoster(const wire::Welcome& welcome, const NodeOptions& own);
// "worker 2 on host b"; of no member, that it is unknown.
std::string NameOf(std::span<const wire::RosterEntry> roster, std::int32_t member);

// Whether the hello is one of a member behind `self` in the roster, to `self` and for this lane.
bool IsForUs(const wire::Hello& hello, Generation generation, std::span<const wire::RosterEntry> roster, MemberId self,
             std::uint16_t lane);
// What a member says to a peer before it ends their connection for this reason: an ABORT that blames the peer.
ByteBuffer WordsOfLoss(Generation generation, std::span<const wire::RosterEntry> roster, MemberId self, MemberId peer,
                       const Status& reason);

// The state that the rooms of a node share: who this member is, its peers, and the phase of the job. Each
// field is written by one room: identity and roster by Formation, the failure by Ending.
//
// Thread: the I/O executor.
class Member {
 public:
  // `on_message` takes the messages that this member sends to itself, in a task of their own.
  Member(const NodeEnvironment& environment, const NodeOptions& node_options, messaging::MeshObserver& observer,
         std::function<void(const wire::Message&)> on_message);

  const NodeEnvironment env;
  const NodeOptions options;
  messaging::Mesh mesh;
  coordinator::Coordinator* coordinator = nullptr;  // in rank 0's process

  Phase phase = Phase::kNew;
  Status failure;  // why it ended; "the job has ended" after an orderly end

  double bandwidth = 0;  // of its link that the job's members may use, bytes per second; 0: all. Written by Formation

  MemberId self;
  Rank rank;
  std::vector<wire::RosterEntry> roster;
  std::vector<std::uint32_t> host_of_rank;  // empty: flat

  bool is_worker() const { return options.role == wire::Role::kWorker; }
  // Whether workers combine on their hosts before anything crosses the network.
  bool levelled() const { return !host_of_rank.empty(); }
  // "worker 2 on host b".
  std::string NameOf(std::int32_t member) const { return session::NameOf(roster, member); }

  // Returns every worker by its rank, and the owners of the shards.
  sync::Topology Flat() const;
  // Where workers combine on their hosts: how many of each exchange layers for it, and where this one is among its host's,
  // in rank order. 1 and 0 for flat workers.
  std::uint16_t leaders() const;
  std::size_t place_on_host() const;
  // Whether factors go from worker to worker all the same (plan::FactorsAreFlat).
  bool factors_are_flat() const;
  std::uint16_t sharers_of_link() const;  // plan::SharersOfLink
  // What lane 0 carries of the layers, where members have so many lanes.
  plan::LaneShare ShareOf(std::uint16_t lanes) const;

  // Returns the members that exchange with this one its part of the layers: the same, or the leaders in its place on their
  // hosts. Of a worker that does not lead, the first leaders, and without a rank.
  sync::Topology Among() const;
  // How many members this one exchanges layers with. Pre: the roster is known.
  std::size_t layer_peers() const;

  // The members with which this one exchanges layers.
  std::set<MemberId> LayerPeers() const;
  messaging::Connections Connections() const { return {.all = roster.size() - 1, .with_layers = layer_peers()}; }
  // Whether the job keeps to a bandwidth, and this member has connections. Pre: the roster is known.
  bool is_held() const { return bandwidth > 0 && roster.size() > 1; }
  // What the members' connections, a host's together, may carry at `lanes` lanes; nothing is said where they are not held, or there are none. Pre: the
  // roster is known.
  messaging::Paces Paces(std::size_t lanes) const;
  // What all connections over which layers are exchanged may carry together, bytes per second; 0: they are not held.
  double LayersWithinBandwidth() const;
  // kInvalidArgument where a connection would have less than it can be held to.
  Status CheckBandwidth(std::size_t lanes) const;

  // The next in the ring of those that measure links: all members, or where workers combine the first leaders, but on one host all
  // the same. This member itself, where it measures none or is alone.
  MemberId NextInRing() const;

  // Returns what this member says of itself when it joins; it listens at `address`.
  wire::Join Introduction(const transport::Address& address) const;
  void SendTo(MemberId to, const wire::Message& message);
  // Tells every peer that the job ends, for this reason.
  void SendAbort(const Status& reason);
  void Cancel(TimerId& timer);
  // Completes `done`, if there is one, on the completions executor.
  void PostDone(Completion& done, const Status& status);

 private:
  std::uint32_t servers() const;
  std::size_t leader_place() const;
  sync::Topology AmongLeaders(std::size_t leader) const;

  const std::function<void(const wire::Message&)> on_message_;
  Alive alive_;
};

// Returns the failure with the scope of the whole job.
inline Status JobFailure(const Status& status, std::int32_t culprit = kNoCulprit) {
  return {status.code(), status.message(), StatusScope::kJob, culprit};
}

inline std::int32_t CulpritOf(const std::optional<MemberId>& culprit) {
  return culprit ? culprit->value() : kNoCulprit;
}

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_MEMBER_H_
