// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/member.h"

#include <algorithm>
#include <utility>

#include "poseidon/base/lesser.h"
#include "poseidon/base/quantities.h"
#include "poseidon/plan/hosts.h"

namespace poseidon::session {

coordinator::Member EntryOf(std::span<const wire::RosterEntry> roster, std::size_t place) {
  const wire::RosterEntry& entry = roster[place];
  coordinator::Member member;
  member.id = entry.member;
  member.role =
      entry.role == wire::Role::kServer ? coordinator::Role::kServer : coordinator::Role::kWorker;
  member.rank = entry.rank;
  for (std::size_t i = 0; i < place; ++i) {
    if (roster[i].role == wire::Role::kServer) ++member.shard;
  }
  member.host = entry.host;
  member.address = entry.listen_host;
  member.port = entry.listen_port;
  return member;
}

std::string NameOf(std::span<const wire::RosterEntry> roster, std::int32_t member) {
  if (member < 0 || static_cast<std::size_t>(member) >= roster.size()) return "an unknown member";
  return coordinator::Describe(EntryOf(roster, static_cast<std::size_t>(member)));
}

// Workers come first, in the order of their ranks. Numbers of members are places in the roster, by which the job's
// members are looked up.
Status CheckRoster(const wire::Welcome& welcome, const NodeOptions& own) {
  const std::vector<wire::RosterEntry>& roster = welcome.roster;
  bool fits = (welcome.member == kCoordinatorMember) == own.hosts_coordinator &&
              roster[welcome.member.value()].role == own.role;
  for (std::size_t i = 0; i < roster.size(); ++i) {
    const bool worker = roster[i].role == wire::Role::kWorker;
    fits = fits && roster[i].member.value() == i && (!worker || roster[i].rank.value() == i) &&
           (!worker || i == 0 || roster[i - 1].role == wire::Role::kWorker);
  }
  return fits ? OkStatus() : DataLoss("sent a roster that is no job's, or one in which this member is another");
}

bool IsForUs(const wire::Hello& hello, Generation generation, std::span<const wire::RosterEntry> roster, MemberId self,
             std::uint16_t lane) {
  return hello.generation == generation && hello.lane == lane && hello.to == self && hello.from > self &&
         hello.from.value() < roster.size();
}

ByteBuffer WordsOfLoss(Generation generation, std::span<const wire::RosterEntry> roster, MemberId self, MemberId peer,
                       const Status& reason) {
  return wire::Encode(wire::Abort{
      generation, peer.value(), false, static_cast<std::uint8_t>(reason.code()),
      coordinator::DescribeLoss(NameOf(roster, peer.value()), NameOf(roster, self.value()), reason)});
}

Member::Member(const NodeEnvironment& environment, const NodeOptions& node_options, messaging::MeshObserver& observer,
               std::function<void(const wire::Message&)> on_message)
    : env(environment),
      options(node_options),
      mesh(environment.io, {.flow = node_options.strategy.flow, .trace = environment.trace}, observer),
      on_message_(std::move(on_message)) {}

sync::Topology Member::Flat() const {
  sync::Topology topology;
  topology.self = self;
  for (const wire::RosterEntry& entry : roster) {
    if (entry.role == wire::Role::kWorker) topology.worker_of_rank.push_back(entry.member);
  }
  for (const wire::RosterEntry& entry : roster) {
    if (entry.role == wire::Role::kServer) topology.owner_of_shard.push_back(entry.member);
  }
  // Without dedicated servers every worker hosts a shard.
  if (topology.owner_of_shard.empty()) topology.owner_of_shard = topology.worker_of_rank;
  if (is_worker()) topology.self_rank = rank;
  return topology;
}

std::uint32_t Member::servers() const {
  return static_cast<std::uint32_t>(std::ranges::count(roster, wire::Role::kServer, &wire::RosterEntry::role));
}

std::uint16_t Member::leaders() const { return plan::LeadersPerHost(host_of_rank, servers()); }

bool Member::factors_are_flat() const { return plan::FactorsAreFlat(host_of_rank, servers()); }

std::uint16_t Member::sharers_of_link() const { return plan::SharersOfLink(host_of_rank, servers()); }

std::size_t Member::place_on_host() const {
  if (!levelled() || !is_worker()) return 0;
  const std::vector<std::uint16_t> ranks = plan::RanksOf(host_of_rank, host_of_rank[rank.value()]);
  return static_cast<std::size_t>(std::ranges::find(ranks, rank.value()) - ranks.begin());
}

plan::LaneShare Member::ShareOf(std::uint16_t lanes) const {
  return {.lane = static_cast<std::uint16_t>(leader_place() * lanes), .lanes = static_cast<std::uint16_t>(leaders() * lanes)};
}

// This worker's own place, where it leads.
std::size_t Member::leader_place() const { return place_on_host() < leaders() ? place_on_host() : 0; }

sync::Topology Member::Among() const { return AmongLeaders(leader_place()); }

// `leader`: by place.
sync::Topology Member::AmongLeaders(std::size_t leader) const {
  sync::Topology flat = Flat();
  if (!levelled()) return flat;
  sync::Topology topology;
  topology.self = self;
  // A host contributes the sum of its workers, and the mean divides by all workers.
  topology.workers = flat.ranks();
  const auto ranks = plan::RanksByHost(host_of_rank);
  for (std::uint16_t host = 0; host < ranks.size(); ++host) {
    const std::uint16_t of_host = ranks[host][leader];
    topology.worker_of_rank.push_back(flat.worker_of_rank[of_host]);
    if (flat.self_rank == Rank(of_host)) topology.self_rank = Rank(host);
  }
  // Shards that workers host move to the leaders, who alone exchange layers.
  const bool dedicated = flat.owner_of_shard != flat.worker_of_rank;
  topology.owner_of_shard = dedicated ? std::move(flat.owner_of_shard) : topology.worker_of_rank;
  return topology;
}

std::size_t Member::layer_peers() const {
  if (!levelled() || factors_are_flat()) return roster.size() - 1;
  const sync::Topology topology = Among();
  const std::size_t owners =
      topology.owner_of_shard == topology.worker_of_rank ? 0 : topology.owner_of_shard.size();
  return topology.worker_of_rank.size() + owners - 1;
}

std::set<MemberId> Member::LayerPeers() const {
  const sync::Topology topology = factors_are_flat() ? Flat() : Among();
  std::set<MemberId> peers(topology.worker_of_rank.begin(), topology.worker_of_rank.end());
  peers.insert(topology.owner_of_shard.begin(), topology.owner_of_shard.end());
  // A follower exchanges none over the network.
  return peers.erase(self) > 0 ? peers : std::set<MemberId>{};
}

messaging::Paces Member::Paces(std::size_t lanes) const {
  return is_held() ? messaging::PacesWithin(messaging::PayloadWithin(bandwidth), Connections(), lanes * sharers_of_link()) : messaging::Paces{};
}

double Member::LayersWithinBandwidth() const {
  return is_held() ? messaging::LayersWithin(messaging::PayloadWithin(bandwidth), Connections()) : 0;
}

Status Member::CheckBandwidth(std::size_t lanes) const {
  const messaging::Paces paces = Paces(lanes);
  const double pace = LesserRate(paces.layers, paces.others);
  if (pace == 0 || pace >= messaging::kLeastPace) return OkStatus();
  const double least = 1.005 * bandwidth * messaging::kLeastPace / pace;  // its text is rounded
  return JobFailure(InvalidArgument("the least bandwidth of a member is " + RateText(8 * bandwidth) + ", expected at least " +
                                    RateText(8 * least) + " for " + std::to_string(roster.size()) + " members" +
                                    (lanes > 1 ? " with " + std::to_string(lanes) + " lanes" : "") +
                                    (sharers_of_link() > 1 ? ", of which " + std::to_string(leaders()) + " of each host exchange for it" : "")));
}

MemberId Member::NextInRing() const {
  if (!levelled() || factors_are_flat()) {
    return MemberId(static_cast<std::uint16_t>((self.value() + 1) % roster.size()));
  }
  // One of a host measures its link.
  std::vector<MemberId> ring = AmongLeaders(0).worker_of_rank;
  for (const wire::RosterEntry& entry : roster) {
    if (entry.role == wire::Role::kServer) ring.push_back(entry.member);
  }
  const auto found = std::find(ring.begin(), ring.end(), self);
  if (found == ring.end()) return self;
  return found + 1 == ring.end() ? ring.front() : *(found + 1);
}

wire::Join Member::Introduction(const transport::Address& address) const {
  wire::Join join;
  join.role = options.role;
  join.requested_rank = options.requested_rank;
  join.host = options.host;
  join.listen_host = options.advertise_host.empty() ? address.host : options.advertise_host;
  join.listen_port = address.port;
  join.machine = is_worker() ? options.machine : "";
  join.strategy = options.strategy.name;
  join.bandwidth = options.bandwidth;
  return join;
}

void Member::SendTo(MemberId to, const wire::Message& message) {
  if (to != self) return mesh.SendControl(to, wire::Encode(message));
  // Posted: an answer within the call would find its sender, the coordinator for one, amid its actions.
  env.io.Post(alive_.Guard([this, message] { on_message_(message); }));
}

void Member::SendAbort(const Status& reason) {
  for (const MemberId peer : mesh.peers()) {
    SendTo(peer, wire::Abort{mesh.generation(), reason.culprit(), false, static_cast<std::uint8_t>(reason.code()),
                             reason.message()});
  }
}

void Member::Cancel(TimerId& timer) {
  if (timer != 0) env.io.Cancel(std::exchange(timer, 0));
}

void Member::PostDone(Completion& done, const Status& status) {
  if (!done) return;
  env.completions.Post([done = std::exchange(done, {}), status] { done(status); });
}

}  // namespace poseidon::session
