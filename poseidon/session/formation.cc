// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/formation.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "poseidon/base/check.h"
#include "poseidon/base/lesser.h"
#include "poseidon/messaging/budget.h"
#include "poseidon/plan/hosts.h"

namespace poseidon::session {
namespace {

Status NoIntroduction() { return DataLoss("a connection began with a message that is no introduction"); }

}  // namespace

Formation::Formation(Member& member, Ending& ending, Liveness& liveness, std::function<void()> on_roster)
    : member_(member), ending_(ending), liveness_(liveness), on_roster_(std::move(on_roster)) {}

Formation::~Formation() {
  member_.Cancel(join_timer_);
  member_.Cancel(beat_timer_);
}

Status Formation::Listen() {
  POSEIDON_ASSERT_ON(member_.env.io);
  POSEIDON_ASSIGN_OR_RETURN(
      listener_, member_.env.context.Listen(member_.options.listen,
                                            alive_.Guard([this](std::unique_ptr<transport::Connection> c) {
                                              member_.mesh.AddStranger(std::move(c));
                                            })));
  return OkStatus();
}

void Formation::Start(Completion ready) {
  POSEIDON_ASSERT_ON(member_.env.io);
  POSEIDON_CHECK(listener_ != nullptr && member_.phase == Phase::kNew, "Listen comes before Start, once");
  ready_ = std::move(ready);
  member_.phase = Phase::kJoining;
  started_at_ = member_.env.io.now();
  if (!member_.options.hosts_coordinator) return JoinCoordinator();
  BeatToJoiners();

  member_.env.io.Post(alive_.Guard([this] {
    if (member_.phase == Phase::kEnded) return;
    member_.coordinator->OnJoin(coordinator::ConnectionId(0), member_.Introduction(listener_->address()), true);
  }));
}

void Formation::JoinCoordinator() {
  member_.env.context.Connect(
      member_.options.coordinator, member_.options.join_timeout,
      alive_.Guard([this](Result<std::unique_ptr<transport::Connection>> connection) {
        if (member_.phase == Phase::kEnded) return;
        if (!connection.ok()) {
          return ending_.End(JobFailure(connection.status().WithPrefix("cannot reach the coordinator at " +
                                                               member_.options.coordinator.ToString())));
        }
        const auto channel = member_.mesh.AddStranger(*std::move(connection));
        to_coordinator_ = channel.get();
        member_.mesh.SendControl(*channel, wire::Encode(member_.Introduction(listener_->address())));
        AwaitWelcome();
        BeatBeforeWelcome(channel);
      }));
}

// The coordinator answers when its own time to form is over, and says why. If no answer comes then, the coordinator is
// not there, and nothing else would notice before the roster is known.
void Formation::AwaitWelcome() {
  const Duration patience = member_.options.join_timeout + member_.options.liveness.dead_after_silence();
  join_timer_ = member_.env.io.PostAfter(patience, alive_.Guard([this] {
    join_timer_ = 0;
    if (member_.phase != Phase::kJoining) return;
    ending_.End(Status(StatusCode::kDeadlineExceeded,
                       "the coordinator at " + member_.options.coordinator.ToString() + " has not answered within " +
                   coordinator::InSeconds(member_.options.join_timeout),
               StatusScope::kJob, CoordinatorIfHere()));
  }));
}

// While a job forms, who has joined and the coordinator's host hear each other as members do later: a process that is
// frozen meanwhile is not waited for until the job should have formed.
void Formation::BeatBeforeWelcome(const std::shared_ptr<messaging::Channel>& coordinator) {
  beat_timer_ = member_.env.io.PostAfter(
      member_.options.liveness.heartbeat_interval(), alive_.Guard([this, coordinator, looked = member_.env.io.now()] {
        if (member_.phase != Phase::kJoining) return;
        const TimePoint now = member_.env.io.now();
        const bool absent = now - looked > member_.options.liveness.own_absence();
        const Duration silence = now - coordinator->last_received();
        if (!absent && silence >= member_.options.liveness.dead_after_silence()) {
          return ending_.End(Status(StatusCode::kUnavailable,
                                     "rank 0 at " + member_.options.coordinator.ToString() + " has been silent for " +
                                         coordinator::InSeconds(silence) +
                                         " before the job had formed: it is frozen, or its host or network is gone",
                                     StatusScope::kJob, kCoordinatorMember.value()));
        }
        member_.mesh.SendHeartbeat(*coordinator);
        BeatBeforeWelcome(coordinator);
      }));
}

// The coordinator's member id where it is reached without a network, because then only it can be silent; else none.
std::int32_t Formation::CoordinatorIfHere() const {
  return member_.options.coordinator.host == address().host ? kCoordinatorMember.value() : kNoCulprit;
}

// ---- joiners, at the coordinator

// Numbers the connections of joiners, so that one that joins twice on its connection does not count as two.
coordinator::ConnectionId Formation::JoinerOf(const std::shared_ptr<messaging::Channel>& stranger) {
  for (const auto& [connection, channel] : joiners_) {
    if (channel == stranger) return connection;
  }
  const coordinator::ConnectionId connection(next_connection_++);
  joiners_.emplace(connection, stranger);
  return connection;
}

void Formation::BeatToJoiners() {
  beat_timer_ = member_.env.io.PostAfter(
      member_.options.liveness.heartbeat_interval(), alive_.Guard([this, looked = member_.env.io.now()] {
        if (member_.phase != Phase::kJoining) return;
        const TimePoint now = member_.env.io.now();
        const bool absent = now - looked > member_.options.liveness.own_absence();
        for (const auto& [connection, channel] : joiners_) {
          const Duration silence = now - channel->last_received();
          if (!absent && silence >= member_.options.liveness.dead_after_silence()) {
            return member_.coordinator->OnJoinerLost(connection, "was silent for " + coordinator::InSeconds(silence));
          }
          member_.mesh.SendHeartbeat(*channel);
        }
        BeatToJoiners();
      }));
}

void Formation::SendToJoiner(coordinator::ConnectionId connection, const wire::Message& message) {
  POSEIDON_ASSERT_ON(member_.env.io);
  const auto found = joiners_.find(connection);
  if (found != joiners_.end()) member_.mesh.SendControl(*found->second, wire::Encode(message));
}

void Formation::AdmitJoiner(coordinator::ConnectionId connection, MemberId member) {
  POSEIDON_ASSERT_ON(member_.env.io);
  const auto found = joiners_.find(connection);
  if (found == joiners_.end()) return;
  const auto channel = found->second;
  joiners_.erase(found);
  member_.mesh.Identify(channel, member);
}

void Formation::DismissJoiner(coordinator::ConnectionId connection) {
  POSEIDON_ASSERT_ON(member_.env.io);
  const auto found = joiners_.find(connection);
  if (found == joiners_.end()) return;
  const auto channel = found->second;
  joiners_.erase(found);
  channel->CloseWhenDrained(Unavailable("the joiner was refused"));
}

void Formation::OnStrangerClosed(const messaging::Channel& stranger, const Status& reason) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (member_.phase == Phase::kEnded) return;
  for (auto it = joiners_.begin(); it != joiners_.end(); ++it) {
    if (it->second.get() != &stranger) continue;
    const coordinator::ConnectionId connection = it->first;
    joiners_.erase(it);
    member_.coordinator->OnJoinerLost(connection, "ended", reason);
    return;
  }
  if (member_.phase == Phase::kJoining && &stranger == to_coordinator_) {
    // The coordinator may have ended because of another member, and its ABORT may not have come here.
    ending_.End(JobFailure(reason.WithPrefix("the coordinator at " + member_.options.coordinator.ToString() +
                                     " closed the connection before the job had formed")));
  }
}

// ---- introductions

// The first message of a connection says what it is for: joining (at the coordinator's host), the
// coordinator's answer (at a joiner), or a peer of the roster.
Status Formation::OnIntroduction(const std::shared_ptr<messaging::Channel>& stranger, ConstBytes bytes) {
  POSEIDON_ASSERT_ON(member_.env.io);
  POSEIDON_ASSIGN_OR_RETURN(const wire::Message message, wire::Decode(bytes));
  if (const auto* join = std::get_if<wire::Join>(&message)) return OnJoin(stranger, *join);
  if (const auto* hello = std::get_if<wire::Hello>(&message)) return OnHello(stranger, *hello);
  if (member_.phase == Phase::kJoining && stranger.get() == to_coordinator_) return OnAnswer(stranger, message);
  return NoIntroduction();
}

Status Formation::OnJoin(const std::shared_ptr<messaging::Channel>& stranger, const wire::Join& join) {
  if (member_.coordinator == nullptr) return DataLoss("a process tried to join at a plain member");
  member_.coordinator->OnJoin(JoinerOf(stranger), join, false);
  return OkStatus();
}

// A refusal, and the end of a job that did not come about, are the coordinator's to say: its connection is sound.
Status Formation::OnAnswer(const std::shared_ptr<messaging::Channel>& coordinator, const wire::Message& answer) {
  if (const auto* welcome = std::get_if<wire::Welcome>(&answer)) {
    if (Status fits = CheckRoster(*welcome, member_.options); !fits.ok()) {
      ending_.End(fits.WithPrefix("the coordinator at " + member_.options.coordinator.ToString()));
      return fits;
    }
    member_.mesh.Identify(coordinator, kCoordinatorMember);
    return OnWelcome(*welcome);
  }
  if (const auto* refuse = std::get_if<wire::Refuse>(&answer)) {
    ending_.End(Status(StatusCode::kFailedPrecondition, "the coordinator refused: " + refuse->reason,
                       StatusScope::kJob));
    return OkStatus();
  }
  if (const auto* abort = std::get_if<wire::Abort>(&answer)) {
    ending_.End(Status(static_cast<StatusCode>(abort->code), abort->reason, StatusScope::kJob, abort->culprit));
    return OkStatus();
  }
  return NoIntroduction();
}

Status Formation::OnWelcome(const wire::Welcome& welcome) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (member_.phase != Phase::kJoining) return DataLoss("a second welcome came");
  member_.Cancel(join_timer_);
  member_.Cancel(beat_timer_);
  LimitStart();
  member_.phase = Phase::kConnecting;
  member_.self = welcome.member;
  member_.roster = welcome.roster;
  member_.rank = member_.roster[member_.self.value()].rank;
  member_.mesh.set_generation(welcome.generation);

  std::vector<std::string> machines;
  for (const wire::RosterEntry& entry : member_.roster) {
    if (entry.role == wire::Role::kWorker) machines.push_back(entry.machine);
  }
  // The coordinator leaves out the machines where every worker exchanges for itself.
  member_.host_of_rank = plan::HostOfRank(machines, plan::Levels::kHost);
  member_.bandwidth = welcome.bandwidth;
  if (!HoldToBandwidth()) return OkStatus();
  on_roster_();
  probe_ = std::make_unique<LinkProbe>(member_.env.io, member_.mesh, member_.NextInRing(), member_.options.probe_bytes);
  liveness_.Begin();
  ConnectToPeers();
  return OkStatus();
}

// Until the layers are known, every connection has an even share: workers may do anything together. False where that is less
// than a connection can be held to.
bool Formation::HoldToBandwidth() {
  if (!member_.is_held()) return true;
  const double all = messaging::PayloadWithin(member_.bandwidth);
  link_.bytes_per_second = LesserRate(link_.bytes_per_second, member_.LayersWithinBandwidth());
  if (const Status enough = member_.CheckBandwidth(1); !enough.ok()) {
    ending_.End(enough);
    return false;
  }
  const double share = all / static_cast<double>(member_.roster.size() - 1);
  member_.mesh.Hold({share, share}, {});
  return true;
}

// From the welcome until everybody has met: what is left of the time to join. A member that dies or falls silent
// meanwhile is missed as such first, because others that are not connected yet only wait for it.
void Formation::LimitStart() {
  const Duration least = member_.options.liveness.dead_after_silence() + std::chrono::seconds(2);
  // The coordinator, which knows who is missed, reports first.
  const Duration later =
      member_.coordinator != nullptr ? Duration{0} : 2 * kTimeForLastMessages + std::chrono::seconds(1);
  const Duration left = std::max(least, member_.options.join_timeout - (member_.env.io.now() - started_at_)) + later;
  join_timer_ = member_.env.io.PostAfter(left, alive_.Guard([this] {
    join_timer_ = 0;
    if (member_.phase == Phase::kEnded || !ready_) return;
    const Duration waited = member_.env.io.now() - started_at_;
    if (member_.coordinator != nullptr) return member_.coordinator->OnSlowStart(waited);
    ending_.Abort(Status(StatusCode::kDeadlineExceeded,
                 "has waited " + coordinator::InSeconds(waited) + " for all members to connect to each other",
                 StatusScope::kJob));
  }));
}

// ---- everybody meets everybody

// Each member connects to those before it in the roster; the connection to member 0 is there.
void Formation::ConnectToPeers() {
  for (std::uint16_t peer = 1; peer < member_.self.value(); ++peer) {
    const wire::RosterEntry& entry = member_.roster[peer];
    member_.env.context.Connect(
        {entry.listen_host, entry.listen_port}, member_.options.join_timeout,
        alive_.Guard([this, entry](Result<std::unique_ptr<transport::Connection>> connection) {
          if (member_.phase == Phase::kEnded) return;
          if (!connection.ok()) {
            return ending_.Abort(JobFailure(
                connection.status().WithPrefix("cannot reach " + member_.NameOf(entry.member.value())),
                entry.member.value()));
          }
          const auto channel = member_.mesh.AddStranger(*std::move(connection));
          member_.mesh.Identify(channel, entry.member);
          member_.mesh.SendControl(*channel,
                            wire::Encode(wire::Hello{member_.mesh.generation(), member_.self, entry.member}));
          OnPeerConnected();
        }));
  }
  for (auto& [channel, hello] : std::exchange(early_hellos_, {})) {
    if (const Status status = OnHello(channel, hello); !status.ok()) channel->Close(status);
  }
  OnPeerConnected();
}

Status Formation::OnHello(const std::shared_ptr<messaging::Channel>& channel, const wire::Hello& hello) {
  if (member_.phase == Phase::kJoining) {  // the peer was welcomed before us
    early_hellos_.emplace_back(channel, hello);
    return OkStatus();
  }
  if (!IsForUs(hello, member_.mesh.generation(), member_.roster, member_.self, 0) ||
      !member_.mesh.Identify(channel, hello.from)) {
    return DataLoss("a hello does not fit the roster");
  }
  OnPeerConnected();
  return OkStatus();
}

void Formation::OnPeerConnected() {
  if (member_.phase != Phase::kConnecting || member_.mesh.peers().size() + 1 < member_.roster.size()) return;
  member_.phase = Phase::kReady;
  member_.SendTo(kCoordinatorMember, wire::Reached{wire::Stage::kConnected, {}});
}

void Formation::OnAllConnected() {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (member_.phase != Phase::kReady) return;
  member_.phase = Phase::kRunning;
  liveness_.Weigh(coordinator::Formed{});
  if (member_.NextInRing() == member_.self || member_.options.probe_bytes == 0) {
    return member_.SendTo(kCoordinatorMember, wire::Reached{wire::Stage::kMeasured, {}});
  }
  // Everybody sends to one member and hears another one, over one connection each.
  const double whole = messaging::PayloadWithin(member_.bandwidth);
  member_.mesh.Hold({whole, whole}, {});
  probe_->Run(
      alive_.Guard([this](LinkMeasurement link) {
        link_ = link;
        link_.bytes_per_second = LesserRate(link.bytes_per_second, member_.LayersWithinBandwidth());
        if (member_.options.strategy.flow_is_fixed) return;
        member_.mesh.SetFlow(messaging::FlowFor(SpeedOf(link_, member_.options.cpu_seconds_per_wire_byte), member_.layer_peers()));
      }),
      alive_.Guard([this] {
        static_cast<void>(HoldToBandwidth());
        member_.SendTo(kCoordinatorMember, wire::Reached{wire::Stage::kMeasured, {}});
      }));
}

void Formation::OnAllMeasured() {
  POSEIDON_ASSERT_ON(member_.env.io);
  member_.Cancel(join_timer_);
  member_.PostDone(ready_, OkStatus());
}

void Formation::OnEcho(MemberId from, const wire::Echo& echo) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (probe_) probe_->OnEcho(from, echo);
}
void Formation::OnProbeReport(MemberId from, const wire::ProbeReport& report) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (probe_) probe_->OnReport(from, report);
}

void Formation::Stop() {
  POSEIDON_ASSERT_ON(member_.env.io);
  member_.Cancel(join_timer_);
}
void Formation::Abandon() {
  POSEIDON_ASSERT_ON(member_.env.io);
  member_.PostDone(ready_, member_.failure);
}

}  // namespace poseidon::session
