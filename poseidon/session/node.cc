// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/node.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "poseidon/factors/rebuild.h"
#include "poseidon/plan/send_order.h"
#include "poseidon/session/exchanges.h"
#include "poseidon/wire/plan_codec.h"

namespace poseidon::session {
namespace {

constexpr MemberId kHostMember{0};
// How long the last words (ABORT, goodbye) may take to leave, behind what the sockets hold already; a
// frozen peer never reads them.
constexpr Duration kLastWords = std::chrono::milliseconds(200);
constexpr std::uint64_t kProductTestRows = 64;

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

coordinator::Member MemberOf(const wire::RosterEntry& entry) {
  coordinator::Member member;
  member.id = entry.member;
  member.role =
      entry.role == wire::Role::kServer ? coordinator::Role::kServer : coordinator::Role::kWorker;
  member.rank = entry.rank;
  member.host = entry.host;
  member.address = entry.listen_host;
  member.port = entry.listen_port;
  return member;
}

// Bytes per second of a copy that no cache holds, the best of three, while the host's other workers do
// the same; 0 on virtual time.
double CopyRate(const Executor& clock) {
  constexpr std::size_t kBytes = 16u << 20;
  const ByteBuffer from(kBytes, std::byte{1});
  ByteBuffer into(kBytes);
  double rate = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const TimePoint begin = clock.now();
    std::copy(from.begin(), from.end(), into.begin());
    const double seconds = ToSeconds(clock.now() - begin);
    if (seconds > 0) rate = std::max(rate, static_cast<double>(kBytes) / seconds);
  }
  return rate;
}

Status JobFailure(const Status& status, std::int32_t culprit = kNoCulprit) {
  return {status.code(), status.message(), StatusScope::kJob, culprit};
}

std::int32_t CulpritOf(const std::optional<MemberId>& culprit) {
  return culprit ? culprit->value() : kNoCulprit;
}

}  // namespace

// Wraps a callback so that it does nothing once this node is gone.
template <typename F>
auto Node::Guarded(F f) {
  return [weak = std::weak_ptr<Node*>(alive_), f = std::move(f)](auto&&... args) mutable {
    if (weak.lock()) f(std::forward<decltype(args)>(args)...);
  };
}

Node::Node(const NodeEnvironment& environment, const NodeOptions& options,
           UniqueFunction<void(const Status&)> on_failure)
    : env_(environment),
      options_(options),
      on_failure_(std::move(on_failure)),
      mesh_(environment.io, {.flow = options.flow, .trace = environment.trace}, *this),
      progress_watch_(options.progress.stuck_after, options.liveness.own_absence()),
      router_([this](const wire::FrameHeader& header) {
        return header.model == wire::kCollectiveModel ? collectives_->SinkOf(header.type) : exchanges_.SinkOf(header);
      }),
      alive_(std::make_shared<Node*>(this)) {}

Node::~Node() {
  for (TimerId* const timer : {&join_timer_, &evidence_timer_, &beat_timer_, &end_timer_}) Cancel(*timer);
}

Status Node::Listen() {
  POSEIDON_ASSIGN_OR_RETURN(
      listener_, env_.context.Listen(options_.listen,
                                     Guarded([this](std::unique_ptr<transport::Connection> c) {
                                       mesh_.AddStranger(std::move(c));
                                     })));
  if (options_.hosts_coordinator) MakeCoordinator();
  return OkStatus();
}

// Made with the listener: whoever connects may join, also before Start.
void Node::MakeCoordinator() {
  coordinator::CoordinatorOptions options;
  options.membership.workers = options_.workers;
  options.membership.servers = options_.servers;
  options.membership.form_within = options_.join_timeout;
  options.membership.liveness = options_.liveness;
  options.planning = options_.planning;
  options.progress = options_.progress;
  options.levels = options_.levels;
  options.final_plan_step = options_.final_plan_step;
  coordinator_ = std::make_unique<coordinator::Coordinator>(env_.io, *this, env_.log, options);
}

void Node::Start(Completion ready) {
  POSEIDON_CHECK(listener_ != nullptr && phase_ == Phase::kNew, "Listen comes before Start, once");
  ready_ = std::move(ready);
  phase_ = Phase::kJoining;
  started_at_ = env_.io.now();
  if (!options_.hosts_coordinator) return JoinCoordinator();
  BeatToJoiners();

  env_.io.Post(Guarded([this] {
    if (phase_ != Phase::kEnded) coordinator_->OnJoin(coordinator::ConnectionId(0), OwnJoin(), true);
  }));
}

wire::Join Node::OwnJoin() const {
  wire::Join join;
  join.role = options_.role;
  join.requested_rank = options_.requested_rank;
  join.host = options_.host;
  join.listen_host =
      options_.advertise_host.empty() ? listener_->address().host : options_.advertise_host;
  join.listen_port = listener_->address().port;
  join.machine = is_worker() ? options_.machine : "";
  return join;
}

void Node::JoinCoordinator() {
  env_.context.Connect(
      options_.coordinator, options_.join_timeout,
      Guarded([this](Result<std::unique_ptr<transport::Connection>> connection) {
        if (phase_ == Phase::kEnded) return;
        if (!connection.ok()) {
          return End(JobFailure(connection.status().WithPrefix("cannot reach the coordinator at " +
                                                               options_.coordinator.ToString())));
        }
        const auto channel = mesh_.AddStranger(*std::move(connection));
        to_coordinator_ = channel.get();
        mesh_.SendControl(*channel, wire::Encode(OwnJoin()));
        AwaitWelcome();
        BeatBeforeWelcome(channel);
      }));
}

// The coordinator answers when its own time to form is over, and says why. If nothing comes then, nobody is
// there to speak, and nothing else would notice before the roster is known.
void Node::AwaitWelcome() {
  const Duration patience = options_.join_timeout + options_.liveness.dead_after_silence();
  join_timer_ = env_.io.PostAfter(patience, Guarded([this] {
    join_timer_ = 0;
    if (phase_ != Phase::kJoining) return;
    End(Status(StatusCode::kDeadlineExceeded,
               "the coordinator at " + options_.coordinator.ToString() + " has not answered within " +
                   coordinator::InSeconds(options_.join_timeout),
               StatusScope::kJob, CoordinatorIfHere()));
  }));
}

// While a job forms, who has joined and the coordinator's host hear each other as members do later: a process that is
// frozen meanwhile is not waited for until the job should have formed.
void Node::BeatBeforeWelcome(const std::shared_ptr<messaging::Channel>& coordinator) {
  beat_timer_ = env_.io.PostAfter(
      options_.liveness.heartbeat_interval(), Guarded([this, coordinator, looked = env_.io.now()] {
        if (phase_ != Phase::kJoining) return;
        const TimePoint now = env_.io.now();
        const bool absent = now - looked > options_.liveness.own_absence();
        const Duration silence = now - coordinator->last_received();
        if (!absent && silence >= options_.liveness.dead_after_silence()) {
          return End(Status(StatusCode::kUnavailable,
                            "rank 0 at " + options_.coordinator.ToString() + " has been silent for " +
                                coordinator::InSeconds(silence) + " before the job had formed: it is frozen, or its host "
                                "or network is gone",
                            StatusScope::kJob, kHostMember.value()));
        }
        mesh_.SendHeartbeat(*coordinator);
        BeatBeforeWelcome(coordinator);
      }));
}

void Node::BeatToJoiners() {
  beat_timer_ = env_.io.PostAfter(
      options_.liveness.heartbeat_interval(), Guarded([this, looked = env_.io.now()] {
        if (phase_ != Phase::kJoining) return;
        const TimePoint now = env_.io.now();
        const bool absent = now - looked > options_.liveness.own_absence();
        for (const auto& [connection, channel] : joiners_) {
          const Duration silence = now - channel->last_received();
          if (!absent && silence >= options_.liveness.dead_after_silence()) {
            return coordinator_->OnJoinerLost(connection, "was silent for " + coordinator::InSeconds(silence));
          }
          mesh_.SendHeartbeat(*channel);
        }
        BeatToJoiners();
      }));
}

// From the welcome until everybody has met: what is left of the time to join. A member that dies or falls silent
// meanwhile is missed as such first, because others that are not connected yet only wait for it.
void Node::LimitStart() {
  const Duration least = options_.liveness.dead_after_silence() + std::chrono::seconds(2);
  // The coordinator, which knows who is missed, speaks first.
  const Duration later = coordinator_ != nullptr ? Duration{0} : 2 * kLastWords + std::chrono::seconds(1);
  const Duration left = std::max(least, options_.join_timeout - (env_.io.now() - started_at_)) + later;
  join_timer_ = env_.io.PostAfter(left, Guarded([this] {
    join_timer_ = 0;
    if (phase_ == Phase::kEnded || !ready_) return;
    const Duration waited = env_.io.now() - started_at_;
    if (coordinator_ != nullptr) return coordinator_->OnSlowStart(waited);
    Abort(Status(StatusCode::kDeadlineExceeded,
                 "has waited " + coordinator::InSeconds(waited) + " for all members to connect to each other",
                 StatusScope::kJob));
  }));
}

// Nothing but itself can silence a coordinator that is reached without a network.
std::int32_t Node::CoordinatorIfHere() const {
  return options_.coordinator.host == address().host ? kHostMember.value() : kNoCulprit;
}

std::string Node::NameOf(std::int32_t member) const {
  if (member < 0 || static_cast<std::size_t>(member) >= roster_.size()) return "an unknown member";
  return coordinator::Describe(MemberOf(roster_[static_cast<std::size_t>(member)]));
}

// ---- control messages

Status Node::OnControl(MemberId from, ConstBytes bytes) {
  POSEIDON_ASSIGN_OR_RETURN(wire::Message message, wire::Decode(bytes));
  return OnMessage(from, message);
}

// The first message of a connection says what it is for: joining (at the coordinator's host), the
// coordinator's answer (at a joiner), or a peer of the roster.
Status Node::OnIntroduction(const std::shared_ptr<messaging::Channel>& stranger, ConstBytes bytes) {
  POSEIDON_ASSIGN_OR_RETURN(wire::Message message, wire::Decode(bytes));
  if (const auto* join = std::get_if<wire::Join>(&message)) {
    if (coordinator_ == nullptr) return DataLoss("a process tried to join at a plain member");
    coordinator_->OnJoin(JoinerOf(stranger), *join, false);
    return OkStatus();
  }
  if (const auto* hello = std::get_if<wire::Hello>(&message)) return OnHello(stranger, *hello);
  if (phase_ != Phase::kJoining || stranger.get() != to_coordinator_) {
    return DataLoss("a connection began with a message that is no introduction");
  }
  if (const auto* welcome = std::get_if<wire::Welcome>(&message)) {
    if (Status fits = CheckRoster(*welcome); !fits.ok()) {
      End(fits.WithPrefix("the coordinator at " + options_.coordinator.ToString()));
      return fits;
    }
    mesh_.Identify(stranger, kHostMember);
    return OnWelcome(*welcome);
  }
  if (const auto* refuse = std::get_if<wire::Refuse>(&message)) {
    End(Status(StatusCode::kFailedPrecondition, "the coordinator refused: " + refuse->reason,
               StatusScope::kJob));
    return OkStatus();
  }
  if (const auto* abort = std::get_if<wire::Abort>(&message)) {
    End(Status(static_cast<StatusCode>(abort->code), abort->reason, StatusScope::kJob,
               abort->culprit));
    return OkStatus();
  }
  return DataLoss("a connection began with a message that is no introduction");
}

// Whoever joins twice on one connection is told apart from two who join.
coordinator::ConnectionId Node::JoinerOf(const std::shared_ptr<messaging::Channel>& stranger) {
  for (const auto& [connection, channel] : joiners_) {
    if (channel == stranger) return connection;
  }
  const coordinator::ConnectionId connection(next_connection_++);
  joiners_.emplace(connection, stranger);
  return connection;
}

Status Node::OnMessage(MemberId from, const wire::Message& message) {
  if (phase_ == Phase::kEnded) return OkStatus();
  const bool from_host = from == kHostMember;
  if (coordinator_ != nullptr && from != self_) coordinator_->OnHeard(from, env_.io.now());
  return std::visit(
      Overloaded{
          [&](const wire::Welcome& m) {
            return from_host ? OnWelcome(m) : DataLoss("only the coordinator welcomes");
          },
          [&](const wire::Start&) {
            if (from_host) OnStart();
            return OkStatus();
          },
          [&](const wire::Begin&) {
            if (from_host) {
              Cancel(join_timer_);
              PostDone(ready_, OkStatus());
            }
            return OkStatus();
          },
          [&](const wire::Agreed& m) {
            return from_host ? OnAgreed(m) : DataLoss("only the coordinator makes plans");
          },
          [&](const wire::Go& m) {
            if (from_host) OnGo(m.model);
            return OkStatus();
          },
          [&](const wire::Goodbye&) {
            if (from_host) OnGoodbye();
            return OkStatus();
          },
          [&](const wire::Abort& m) { return OnAbortMessage(from, m); },
          [&](const wire::Suspect& m) {
            if (coordinator_ != nullptr) return coordinator_->OnMessage(from, m);
            if (m.lost) return DataLoss("only the coordinator is told of lost members");
            Weigh(coordinator::PeerSuspected{from, m.about, m.heard_again});
            return OkStatus();
          },
          [&](const wire::Segment& m) { return OnSegment(from, m); },
          [&](const wire::Echo& m) {
            if (probe_) probe_->OnEcho(from, m);
            return OkStatus();
          },
          [&](const wire::ProbeReport& m) {
            if (probe_) probe_->OnReport(from, m);
            return OkStatus();
          },
          [&](const auto& m) {
            if (coordinator_ != nullptr) return coordinator_->OnMessage(from, m);
            return DataLoss("a control message came that is not for this member");
          },
      },
      message);
}

void Node::SendTo(MemberId to, const wire::Message& message) {
  if (to != self_) return mesh_.SendControl(to, wire::Encode(message));
  env_.io.Post(Guarded([this, message] { static_cast<void>(OnMessage(self_, message)); }));
}

// ---- joining

void Node::SendToMember(MemberId member, const wire::Message& message) { SendTo(member, message); }

void Node::SendToJoiner(coordinator::ConnectionId connection, const wire::Message& message) {
  const auto found = joiners_.find(connection);
  if (found != joiners_.end()) mesh_.SendControl(*found->second, wire::Encode(message));
}

void Node::SendToStrangers(const wire::Message& message) {
  mesh_.SendControlToStrangers(wire::Encode(message));
}

void Node::AdmitJoiner(coordinator::ConnectionId connection, MemberId member) {
  const auto found = joiners_.find(connection);
  if (found == joiners_.end()) return;
  const auto channel = found->second;
  joiners_.erase(found);
  mesh_.Identify(channel, member);
}

void Node::DismissJoiner(coordinator::ConnectionId connection) {
  const auto found = joiners_.find(connection);
  if (found == joiners_.end()) return;
  const auto channel = found->second;
  joiners_.erase(found);
  channel->CloseWhenDrained(Unavailable("the joiner was refused"));
}

// Workers first, in the order of their ranks; numbers of members are places in the roster, and what the
// job is made of is looked up by them.
Status Node::CheckRoster(const wire::Welcome& welcome) const {
  const std::vector<wire::RosterEntry>& roster = welcome.roster;
  bool fits = (welcome.member == kHostMember) == options_.hosts_coordinator &&
              roster[welcome.member.value()].role == options_.role;
  for (std::size_t i = 0; i < roster.size(); ++i) {
    const bool worker = roster[i].role == wire::Role::kWorker;
    fits = fits && roster[i].member.value() == i && (!worker || roster[i].rank.value() == i) &&
           (!worker || i == 0 || roster[i - 1].role == wire::Role::kWorker);
  }
  return fits ? OkStatus()
              : DataLoss("sent a roster that is no job's, or one in which this member is another");
}

Status Node::OnWelcome(const wire::Welcome& welcome) {
  if (phase_ != Phase::kJoining) return DataLoss("a second welcome came");
  Cancel(join_timer_);
  Cancel(beat_timer_);
  LimitStart();
  phase_ = Phase::kConnecting;
  self_ = welcome.member;
  roster_ = welcome.roster;
  rank_ = roster_[self_.value()].rank;
  mesh_.set_generation(welcome.generation);

  std::vector<std::string> machines;
  for (const wire::RosterEntry& entry : roster_) {
    if (entry.role == wire::Role::kWorker) machines.push_back(entry.machine);
  }
  // The coordinator has left out the machines where everybody shall speak for himself.
  host_of_rank_ = plan::HostOfRank(machines, plan::Levels::kHost);
  MakeExchanges();
  probe_ = std::make_unique<LinkProbe>(env_.io, mesh_, ProbedMember(), options_.probe_bytes);

  if (coordinator_ == nullptr) {
    std::vector<coordinator::Member> all;
    for (const wire::RosterEntry& entry : roster_) all.push_back(MemberOf(entry));
    evidence_ = coordinator::BeginEvidence(self_, std::move(all), options_.liveness, env_.io.now());
    ArmEvidenceTimer();
  }
  Beat();
  ConnectToPeers();
  return OkStatus();
}

// Layers are exchanged among workers, or among hosts by their leaders; one-off keys always among
// workers.
void Node::MakeExchanges() {
  const sync::Topology flat = MakeTopology();
  if (levelled()) MakeLocal(flat.worker_of_rank);
  collectives_.emplace(env_.io, mesh_, flat, options_.order, std::bind_front(&Node::CollectivesDiffer, this));
  exchanges_ = session::MakeExchanges({.io = env_.io,
                                       .compute = env_.compute,
                                       .mesh = mesh_,
                                       .among = levelled() ? AmongHosts(flat) : flat,
                                       .flat = flat,
                                       .engine = env_.engine,
                                       .trace = env_.trace,
                                       .order = options_.order,
                                       .placement = options_.placement,
                                       .fail = Guarded([this](const Status& why) { Abort(why); })},
                                      host_level_.get(), env_.device);
  for (const wire::FrameType type : {wire::FrameType::kPush, wire::FrameType::kResult, wire::FrameType::kFactor}) {
    mesh_.Route(type, router_);
  }
}

sync::Topology Node::AmongHosts(sync::Topology flat) const {
  sync::Topology topology;
  topology.self = self_;
  topology.workers = flat.ranks();
  for (std::uint16_t host = 0; host < plan::HostCount(host_of_rank_); ++host) {
    const std::uint16_t leader = plan::RanksOf(host_of_rank_, host).front();
    topology.worker_of_rank.push_back(flat.worker_of_rank[leader]);
    if (flat.self_rank == Rank(leader)) topology.self_rank = Rank(host);
  }
  const bool dedicated = flat.owner_of_shard != flat.worker_of_rank;
  topology.owner_of_shard =
      dedicated ? std::move(flat.owner_of_shard) : topology.worker_of_rank;
  return topology;
}

void Node::MakeLocal(const std::vector<MemberId>& worker_of_rank) {
  if (!is_worker()) return;
  const std::vector<std::uint16_t> ranks =
      plan::RanksOf(host_of_rank_, host_of_rank_[rank_.value()]);
  std::vector<MemberId> members;
  members.reserve(ranks.size());
  for (const std::uint16_t rank : ranks) members.push_back(worker_of_rank[rank]);
  const auto place = std::find(ranks.begin(), ranks.end(), rank_.value()) - ranks.begin();
  host_level_ = std::make_unique<local::HostLevel>(env_.io, mesh_, std::move(members),
                                                   static_cast<std::size_t>(place), rank_, env_.trace);
  mesh_.Route(wire::FrameType::kLocal, *host_level_);
}

// The next in the ring of those that exchange layers, or this member itself: then nothing is probed.
MemberId Node::ProbedMember() const {
  if (!levelled()) {
    return MemberId(static_cast<std::uint16_t>((self_.value() + 1) % roster_.size()));
  }
  std::vector<MemberId> ring = AmongHosts(MakeTopology()).worker_of_rank;
  for (const wire::RosterEntry& entry : roster_) {
    if (entry.role == wire::Role::kServer) ring.push_back(entry.member);
  }
  const auto found = std::find(ring.begin(), ring.end(), self_);
  if (found == ring.end()) return self_;
  return found + 1 == ring.end() ? ring.front() : *(found + 1);
}

std::size_t Node::layer_peers() const {
  if (!levelled()) return mesh_.peers().size();
  const sync::Topology topology = AmongHosts(MakeTopology());
  const std::size_t owners = topology.owner_of_shard == topology.worker_of_rank
                                 ? 0
                                 : topology.owner_of_shard.size();
  return topology.worker_of_rank.size() + owners - 1;
}

sync::Topology Node::MakeTopology() const {
  sync::Topology topology;
  topology.self = self_;
  for (const wire::RosterEntry& entry : roster_) {
    if (entry.role == wire::Role::kWorker) topology.worker_of_rank.push_back(entry.member);
  }
  for (const wire::RosterEntry& entry : roster_) {
    if (entry.role == wire::Role::kServer) topology.owner_of_shard.push_back(entry.member);
  }
  if (topology.owner_of_shard.empty()) topology.owner_of_shard = topology.worker_of_rank;
  if (is_worker()) topology.self_rank = rank_;
  return topology;
}

// Each member connects to those before it in the roster; the connection to member 0 is there.
void Node::ConnectToPeers() {
  for (std::uint16_t peer = 1; peer < self_.value(); ++peer) {
    const wire::RosterEntry& entry = roster_[peer];
    env_.context.Connect(
        {entry.listen_host, entry.listen_port}, options_.join_timeout,
        Guarded([this, entry](Result<std::unique_ptr<transport::Connection>> connection) {
          if (phase_ == Phase::kEnded) return;
          if (!connection.ok()) {
            return Abort(JobFailure(
                connection.status().WithPrefix("cannot reach " + NameOf(entry.member.value())),
                entry.member.value()));
          }
          const auto channel = mesh_.AddStranger(*std::move(connection));
          mesh_.Identify(channel, entry.member);
          mesh_.SendControl(*channel,
                            wire::Encode(wire::Hello{mesh_.generation(), self_, entry.member}));
          OnPeerConnected();
        }));
  }
  for (auto& [channel, hello] : std::exchange(early_hellos_, {})) {
    if (const Status status = OnHello(channel, hello); !status.ok()) channel->Close(status);
  }
  OnPeerConnected();
}

Status Node::OnHello(const std::shared_ptr<messaging::Channel>& channel, const wire::Hello& hello) {
  if (phase_ == Phase::kJoining) {  // the peer was welcomed before us
    early_hellos_.emplace_back(channel, hello);
    return OkStatus();
  }
  if (hello.generation != mesh_.generation() || hello.to != self_ || hello.from <= self_ ||
      hello.from.value() >= roster_.size() || !mesh_.Identify(channel, hello.from)) {
    return DataLoss("a hello does not fit the roster");
  }
  OnPeerConnected();
  return OkStatus();
}

void Node::OnPeerConnected() {
  if (phase_ != Phase::kConnecting || mesh_.peers().size() + 1 < roster_.size()) return;
  phase_ = Phase::kReady;
  SendTo(kHostMember, wire::Ready{});
}

void Node::OnStart() {
  if (phase_ != Phase::kReady) return;
  phase_ = Phase::kRunning;
  Weigh(coordinator::Formed{});
  if (ProbedMember() == self_ || options_.probe_bytes == 0) return SendTo(kHostMember, wire::Probed{});
  probe_->Run(
      Guarded([this](LinkMeasurement link) {
        link_ = link;
        if (!options_.flow_is_fixed) mesh_.SetFlow(messaging::FlowFor(link_speed(), layer_peers()));
      }),
      Guarded([this] { SendTo(kHostMember, wire::Probed{}); }));
}

void Node::Cancel(TimerId& timer) {
  if (timer != 0) env_.io.Cancel(std::exchange(timer, 0));
}

void Node::PostDone(Completion& done, const Status& status) {
  if (!done) return;
  env_.completions.Post([done = std::exchange(done, {}), status] { done(status); });
}

// ---- model and plan

void Node::Commit(ModelId model, std::vector<plan::LayerSpec> layers,
                  UniqueFunction<void(Result<plan::Plan>)> done) {
  POSEIDON_CHECK(model.value() < wire::kMaxModels, "a session has few models");
  if (phase_ == Phase::kEnded) {
    env_.completions.Post([done = std::move(done), reason = failure_] { done(reason); });
    return;
  }
  ++calls_;
  models_[model].committed = std::move(done);
  RunProductTests(model, std::move(layers));
}

// Every member multiplies the same numbers for each factor layer and hashes the bits. Layers of one
// shape share one test.
void Node::RunProductTests(ModelId model, std::vector<plan::LayerSpec> layers) {
  env_.compute.Post([this, model, weak = std::weak_ptr<Node*>(alive_), layers = std::move(layers),
                     engine = env_.engine, workers = options_.workers,
                     measure_copies = levelled() && options_.probe_bytes != 0,
                     &compute = env_.compute, &io = env_.io]() mutable {
    wire::Declare declare;
    declare.model = model;
    Status failure;
    double most_flops = 0;
    std::vector<std::pair<plan::FactorShape, std::uint64_t>> tested;
    for (plan::LayerSpec& layer : layers) {
      if (engine == nullptr && !layer.is_table()) layer.factors.reset();
      std::uint64_t hash = 0;
      if (layer.factors && !layer.is_table() && workers > 1 && failure.ok()) {
        const auto known = std::find_if(tested.begin(), tested.end(), [&](const auto& entry) {
          return entry.first == *layer.factors;
        });
        if (known != tested.end()) {
          hash = known->second;
        } else if (Result<factors::ProductTest> test = factors::TestProduct(
                       *layer.factors, layer.dtype, kProductTestRows * workers, *engine, compute);
                   test.ok()) {
          hash = test->hash;
          tested.emplace_back(*layer.factors, hash);
          // The rate of the largest product is the one that matters.
          if (test->flops > most_flops) {
            most_flops = test->flops;
            declare.rebuild_flops = test->rate();
          }
        } else {
          failure = test.status().WithPrefix("layer '" + layer.name + "'");
        }
      }
      declare.product_hashes.push_back(hash);
    }
    if (measure_copies) declare.copy_bytes_per_second = CopyRate(compute);
    declare.layers = std::move(layers);
    declare.engine = engine != nullptr ? engine->description() : "";
    io.Post([this, weak, declare = std::move(declare), failure]() mutable {
      if (!weak.lock() || phase_ == Phase::kEnded) return;
      if (!failure.ok()) return Abort(failure);
      declare.bandwidth = link_.bytes_per_second;
      declare.latency = link_.latency_seconds;
      declare.cores = options_.cores;
      declare.compute_threads = options_.compute_threads;
      declare.cpu_seconds_per_wire_byte = options_.cpu_seconds_per_wire_byte;
      SendTo(kHostMember, declare);
    });
  });
}

Status Node::OnAgreed(const wire::Agreed& agreed) {
  POSEIDON_RETURN_IF_ERROR(wire::CheckPlanFits(agreed.plan, agreed.layers));
  const auto servers = static_cast<std::size_t>(
      std::count_if(roster_.begin(), roster_.end(), [](const wire::RosterEntry& entry) {
        return entry.role == wire::Role::kServer;
      }));
  if (agreed.plan.cluster.servers != servers ||
      agreed.plan.cluster.workers != roster_.size() - servers) {
    return DataLoss("the plan is for other workers and servers than the roster's");
  }
  if (is_worker() && !models_.contains(agreed.model)) {
    return DataLoss("a plan came for a model that this worker has not declared");
  }
  Model& model = models_[agreed.model];
  if (!model.provisional_plan) {
    if (is_worker() && agreed.final_plan_step != options_.final_plan_step) {
      Abort(Status(StatusCode::kInvalidArgument,
                   "follows the final plan from step " + std::to_string(options_.final_plan_step) +
                       " on and worker 0 from step " + std::to_string(agreed.final_plan_step) +
                       ", expected one number",
                   StatusScope::kJob, self_.value()));
      return OkStatus();
    }
    SetUpModel(model, agreed);
    return OkStatus();
  }
  if (agreed.plan.layers.size() != model.provisional_plan->layers.size()) {
    return DataLoss("the final plan is not of the layers that were agreed on");
  }
  model.final_plan = agreed.plan;
  FollowPlan(agreed.model, agreed.plan);
  if (!is_worker()) return OkStatus();
  CommitLittleAtTheEnd(model, agreed);
  for (auto& waiting : std::exchange(model.awaiting_plan, {})) {
    env_.completions.Post([done = std::move(waiting), plan = *model.final_plan] { done(plan); });
  }
  return OkStatus();
}

void Node::SetUpModel(Model& model, const wire::Agreed& agreed) {
  model.provisional_plan = agreed.plan;
  if (agreed.plan.cluster.host_of_rank != host_of_rank_) {
    return Abort(Status(StatusCode::kInternal, "the plan is for other hosts than the roster's",
                        StatusScope::kJob));
  }
  if (host_level_) {
    if (const Status shared = host_level_->Declare(agreed.model, agreed.layers); !shared.ok()) return CannotShare(shared);
  }
  exchanges_.Declare(agreed.model, agreed.layers);
  if (is_worker()) {
    model.scheduler = std::make_unique<schedule::Scheduler>(env_.io, env_.completions, exchanges_, agreed.model,
                                                            agreed.layers.size(), options_.order);
  } else if (!CheckMemory()) {
    return;
  }
  FollowPlan(agreed.model, agreed.plan);
  AnswerDeclared(agreed.model);
}

// A dedicated server says what it needs, and ends a job that needs more than it may take.
bool Node::CheckMemory() {
  const std::uint64_t needed = exchanges_.declared_bytes();
  const std::string amount = std::to_string((needed + (1u << 20) - 1) >> 20) + " MiB";
  env_.log.Log(LogLevel::kNotice, NameOf(self_.value()) + " needs " + amount + " for its shard");
  if (options_.memory_limit_bytes == 0 || needed <= options_.memory_limit_bytes) return true;
  Abort(Status(StatusCode::kResourceExhausted,
               NameOf(self_.value()) + " needs " + amount + " for its shard, but only " +
                   std::to_string(options_.memory_limit_bytes >> 20) + " MiB are available; use more servers",
               StatusScope::kJob, self_.value()));
  return false;
}

// While the backward pass ends, what is committed to the network is in the way of the layers that
// the next forward pass needs first. Which these are depends on this member's link, not on the plan
// alone. The comparison systems' orders let nothing overtake in time.
void Node::CommitLittleAtTheEnd(Model& model, const wire::Agreed& agreed) {
  if (options_.order != messaging::Order::kNextForward || options_.flow_is_fixed) return;
  if (link_.bytes_per_second <= 0 || layer_peers() == 0) return;
  const messaging::Flow usual = messaging::FlowFor(link_speed(), layer_peers());
  const messaging::Flow urgent = messaging::UrgentFlowFor(link_speed(), layer_peers());
  // A contribution waits for what its sender has committed, and its result for what the owner has.
  const double waits = 2 * messaging::DrainSeconds(usual, link_speed(), layer_peers());
  model.scheduler->WatchLast(
      plan::LastOfBackward(agreed.layers, agreed.plan, waits), [this, &model, usual, urgent](bool ends) {
        model.backward_ends = ends;
        const bool any = std::ranges::any_of(models_, [](const auto& m) { return m.second.backward_ends; });
        mesh_.SetFlow(any ? urgent : usual);
      });
}

messaging::LinkSpeed Node::link_speed() const {
  return {link_.bytes_per_second, link_.latency_seconds};
}

void Node::FollowPlan(ModelId model, const plan::Plan& plan) {
  exchanges_.UsePlan(model, plan);
  if (schedule::Scheduler* const of = scheduler(model)) of->UsePlan(plan);
}

Status Node::OnSegment(MemberId from, const wire::Segment& offer) {
  if (!host_level_ || host_level_->leads()) {
    return DataLoss("shared memory is offered to a worker that leads its host");
  }
  if (const Status attached = host_level_->FollowerOf(offer.model).Attach(from, offer); !attached.ok()) {
    CannotShare(attached);
    return OkStatus();
  }
  if (scheduler(offer.model) != nullptr) AnswerDeclared(offer.model);
  return OkStatus();
}

void Node::CannotShare(const Status& reason) {
  Abort(Status(reason.code(),
               NameOf(self_.value()) + " cannot combine with the other workers of its host: " +
                   reason.message() + "; train with --levels=flat",
               StatusScope::kJob));
}

// Declared here: also the shared memory is there.
void Node::AnswerDeclared(ModelId model) {
  const bool waits = host_level_ && !host_level_->leads() && !host_level_->FollowerOf(model).attached();
  if (!waits) SendTo(kHostMember, wire::Declared{model});
}

void Node::OnGo(ModelId id) {
  const auto found = models_.find(id);
  if (found == models_.end()) return;
  if (host_level_ && host_level_->leads()) host_level_->LeaderOf(id).Close();
  Model& model = found->second;
  if (!model.committed || !model.provisional_plan) return;
  env_.completions.Post(
      [done = std::exchange(model.committed, {}), plan = *model.provisional_plan] { done(plan); });
}

void Node::Report(const wire::Measured& measured) {
  ++calls_;
  SendTo(kHostMember, measured);
}

void Node::AwaitFinalPlan(ModelId id, UniqueFunction<void(Result<plan::Plan>)> done) {
  if (phase_ == Phase::kEnded) {
    env_.completions.Post([done = std::move(done), reason = failure_] { done(reason); });
    return;
  }
  Model& model = models_[id];
  if (model.final_plan) {
    env_.completions.Post([done = std::move(done), plan = *model.final_plan] { done(plan); });
  } else {
    model.awaiting_plan.push_back(std::move(done));
  }
}

// ---- work

schedule::Scheduler* Node::scheduler(ModelId model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? nullptr : found->second.scheduler.get();
}

void Node::Push(ModelId model, LayerId layer, sync::SyncRequest request) {
  schedule::Scheduler* const of_model = scheduler(model);
  if (phase_ == Phase::kEnded || of_model == nullptr) {
    const Status reason =
        failure_.ok() ? FailedPrecondition("a layer was pushed before its model was committed")
                      : failure_;
    env_.completions.Post([done = std::move(request.done), reason] { done(reason); });
    return;
  }
  ++calls_;
  of_model->Push(layer, std::move(request));
}

// Such a collective is never whole, and each worker would wait for the others.
void Node::CollectivesDiffer(const Status& how) {
  Abort(Status(how.code(), how.message(), StatusScope::kJob));
}

// What is to complete on the completions thread; a failure is an echo of the job's, where there is one.
Completion Node::OnCompletions(Completion done) {
  auto shared = std::make_shared<Completion>(std::move(done));
  return [weak = std::weak_ptr<Node*>(alive_), shared, &completions = env_.completions](Status status) {
    const auto self = weak.lock();
    if (!status.ok() && self && !(*self)->failure_.ok()) status = (*self)->failure_;
    completions.Post([shared, status] { (*shared)(status); });
  };
}

bool Node::MayCollect(Completion& done) {
  if (phase_ != Phase::kEnded && collectives_ && is_worker()) {
    ++calls_;
    return true;
  }
  PostDone(done, failure_.ok() ? FailedPrecondition("a collective was called before the start") : failure_);
  return false;
}

void Node::Collective(TensorView view, bool contribute, Completion done) {
  if (MayCollect(done)) collectives_->Sum(view, contribute, OnCompletions(std::move(done)));
}

void Node::Broadcast(TensorView view, Rank root, Completion done) {
  if (MayCollect(done)) collectives_->Broadcast(view, root, OnCompletions(std::move(done)));
}

void Node::StepSum(ModelId model, Step step, TensorView view, Completion done) {
  if (MayCollect(done)) collectives_->StepSum(model, step, view, OnCompletions(std::move(done)));
}

std::uint64_t Node::allocated_bytes() const {
  return exchanges_.allocated_bytes() + (collectives_ ? collectives_->allocated_bytes() : 0) +
         (host_level_ ? host_level_->allocated_bytes() : 0);
}

std::uint64_t Node::local_bytes(ModelId model, LayerId layer) const {
  return host_level_ ? host_level_->moved_bytes(model, layer) : 0;
}

// ---- who lives

// Heartbeats leave from the I/O executor, so they survive long compute; what came in since the last
// beat counts as a sign of life.
void Node::Beat() {
  if (phase_ == Phase::kEnded) return;
  for (const MemberId peer : mesh_.peers()) {
    messaging::Outgoing beat;
    beat.header.type = wire::FrameType::kHeartbeat;
    beat.priority = messaging::kControlPriority;
    mesh_.Send(peer, std::move(beat));
    const TimePoint last = mesh_.last_received(peer);
    if (last == heard_at_[peer]) continue;
    heard_at_[peer] = last;
    if (coordinator_) {
      coordinator_->OnHeard(peer, last);
    } else {
      Weigh(coordinator::PeerHeard{peer, last});
    }
    if (phase_ == Phase::kEnded) return;
  }
  ReportProgress();
  beat_timer_ =
      env_.io.PostAfter(options_.liveness.heartbeat_interval(), Guarded([this] { Beat(); }));
}

// A member at which nothing moves tells the coordinator what it lacks; see coordinator/progress.h.
void Node::ReportProgress() {
  if (roster_.size() < 2 || (phase_ != Phase::kRunning && phase_ != Phase::kLeaving)) return;
  const auto used = env_.processor_time ? std::optional(env_.processor_time()) : std::nullopt;
  progress_watch_.Look({env_.io.now(), mesh_.traffic().work() + calls_, used});
  if (progress_watch_.quiet() < options_.progress.report_after()) return;
  wire::Progress progress{.quiet_seconds = ToSeconds(progress_watch_.quiet()),
                          .idle_seconds = ToSeconds(progress_watch_.idle())};
  if (env_.front_end != nullptr) {
    progress.blocked = env_.front_end->blocked();
    progress.busy_with = env_.front_end->busy_with();
  }
  exchanges_.AddWaits(&progress.waits);
  if (collectives_) collectives_->AddWaits(&progress.waits);
  if (host_level_) host_level_->AddWaits(&progress.waits);
  // Sums that are owed to this member tell something only where its contributions are all there.
  std::stable_sort(progress.waits.begin(), progress.waits.end(), [](const wire::Wait& a, const wire::Wait& b) {
    return std::pair(a.what == wire::Wait::For::kMean, a.step) < std::pair(b.what == wire::Wait::For::kMean, b.step);
  });
  if (progress.waits.size() > wire::kMaxWaits) progress.waits.resize(wire::kMaxWaits);
  SendTo(kHostMember, progress);
}

// The peer lives, and reads in these words what the verdict will say of it.
ByteBuffer Node::LastWords(MemberId peer, const Status& reason) {
  return wire::Encode(wire::Abort{
      mesh_.generation(), peer.value(), false, static_cast<std::uint8_t>(reason.code()),
      coordinator::DescribeLoss(NameOf(peer.value()), NameOf(self_.value()), reason)});
}

void Node::OnPeerClosed(MemberId peer, const Status& reason) {
  if (phase_ == Phase::kEnded) return;
  if (coordinator_) {
    coordinator_->OnLost(peer, self_, reason);
  } else {
    Weigh(coordinator::PeerLost{peer, reason});
  }
}

void Node::OnStrangerClosed(const messaging::Channel& stranger, const Status& reason) {
  if (phase_ == Phase::kEnded) return;
  for (auto it = joiners_.begin(); it != joiners_.end(); ++it) {
    if (it->second.get() != &stranger) continue;
    const coordinator::ConnectionId connection = it->first;
    joiners_.erase(it);
    coordinator_->OnJoinerLost(connection, "ended", reason);
    return;
  }
  if (phase_ == Phase::kJoining && &stranger == to_coordinator_) {
    // It may have ended because of another, and its word of that may have missed this one.
    End(JobFailure(reason.WithPrefix("the coordinator at " + options_.coordinator.ToString() +
                                     " closed the connection before the job had formed")));
  }
}

Status Node::OnAbortMessage(MemberId from, const wire::Abort& abort) {
  if (abort.generation != mesh_.generation()) return OkStatus();
  if (coordinator_) return coordinator_->OnMessage(from, abort);
  const auto culprit = abort.culprit == kNoCulprit
                           ? std::nullopt
                           : std::optional(MemberId(static_cast<std::uint16_t>(abort.culprit)));
  abort_code_ = static_cast<StatusCode>(abort.code);
  Weigh(coordinator::PeerAborted{from, culprit, abort.reason});
  return OkStatus();
}

void Node::Weigh(const coordinator::EvidenceEvent& event) {
  if (!evidence_ || phase_ == Phase::kEnded) return;
  coordinator::EvidenceTransition next =
      coordinator::Weigh(*std::exchange(evidence_, std::nullopt), event, env_.io.now());
  evidence_ = std::move(next.state);
  for (const coordinator::EvidenceAction& action : next.actions) {
    std::visit(Overloaded{
                   [this](const coordinator::ReportLost& lost) {
                     SendTo(kHostMember,
                            wire::Suspect{.about = lost.peer,
                                          .lost = true,
                                          .code = static_cast<std::uint8_t>(lost.why.code()),
                                          .reason = lost.why.message()});
                   },
                   [this](const coordinator::ReportSuspect& suspect) {
                     env_.log.Log(LogLevel::kWarning, suspect.line);
                     for (const MemberId peer : mesh_.peers()) {
                       SendTo(peer, wire::Suspect{.about = suspect.peer,
                                                  .heard_again = suspect.heard_again});
                     }
                   },
                   [this](const coordinator::EndWith& end) {
                     const Status reason(abort_code_, end.reason, StatusScope::kJob,
                                         CulpritOf(end.culprit));
                     for (const MemberId peer : mesh_.peers()) {
                       SendTo(peer, wire::Abort{mesh_.generation(), reason.culprit(), false,
                                                static_cast<std::uint8_t>(reason.code()),
                                                reason.message()});
                     }
                     End(reason);
                   },
               },
               action);
  }
  ArmEvidenceTimer();
}

void Node::ArmEvidenceTimer() {
  Cancel(evidence_timer_);
  if (!evidence_ || phase_ == Phase::kEnded) return;
  const std::optional<TimePoint> due = coordinator::NextDeadline(*evidence_);
  if (!due) return;
  evidence_timer_ = env_.io.PostAfter(std::max(Duration{0}, *due - env_.io.now()), Guarded([this] {
                                        evidence_timer_ = 0;
                                        Weigh(coordinator::EvidenceTick{});
                                      }));
}

// ---- the end

void Node::Leave(Completion done) {
  left_ = std::move(done);
  if (phase_ == Phase::kEnded) return PostDone(left_, failure_);
  ++calls_;
  phase_ = Phase::kLeaving;
  Weigh(coordinator::OwnDone{});
  SendTo(kHostMember, wire::Leave{});
}

void Node::AwaitEnd(Completion done) {
  awaiting_end_.push_back(std::move(done));
  if (over_) PostDone(awaiting_end_.back(), ended_well_ ? OkStatus() : failure_);
}

// Everybody is done. The connections may end now, in any order, once the goodbyes have left.
void Node::OnGoodbye() {
  if (phase_ == Phase::kEnded) return;
  Weigh(coordinator::FinishHeard{});
  End(OkStatus());
}

void Node::Abort(const Status& reason) {
  if (phase_ == Phase::kEnded) return;
  if (coordinator_) {
    coordinator_->OnOwnAbort(reason);
    if (phase_ != Phase::kEnded) End(reason);
    return;
  }
  for (const MemberId peer : mesh_.peers()) {
    SendTo(peer, wire::Abort{mesh_.generation(), reason.culprit(), false,
                             static_cast<std::uint8_t>(reason.code()), reason.message()});
  }
  End(reason);
}

void Node::OnVerdict(const coordinator::AbortAll& verdict) {
  End(Status(coordinator_->verdict_code(), verdict.reason, StatusScope::kJob,
             CulpritOf(verdict.culprit)));
}

// `reason` OK is the orderly end. Last words get a moment to leave; then every connection is closed
// before anything completes, because until then memory may still be read and written.
void Node::End(const Status& reason) {
  if (phase_ == Phase::kEnded) return;
  phase_ = Phase::kEnded;
  Cancel(join_timer_);
  failure_ = reason.ok() ? FailedPrecondition("the job has ended") : reason;
  ended_well_ = reason.ok();
  const Status closing = reason.ok() ? Unavailable("the job has ended") : reason;
  mesh_.CloseAllWhenDrained(closing);
  const Duration wait = mesh_.drained() ? Duration{0} : kLastWords;
  end_timer_ = env_.io.PostAfter(wait, Guarded([this] {
                                   end_timer_ = 0;
                                   FinishEnding();
                                 }));
  // Told before anything completes with it: a push that comes now is refused at once.
  if (auto told = std::exchange(on_failure_, {}); told && !ended_well_) told(failure_);
}

void Node::Vanish() {
  on_failure_ = {};
  if (phase_ != Phase::kEnded) {
    phase_ = Phase::kEnded;
    failure_ = Unavailable("the session was closed");
  } else if (end_timer_ == 0) {
    return;  // has ended
  } else {
    Cancel(end_timer_);
  }
  FinishEnding();
}

void Node::FinishEnding() {
  mesh_.CloseAll(failure_);
  exchanges_.Abandon(failure_);
  if (collectives_) collectives_->Abandon(failure_);
  if (host_level_) host_level_->Abandon(failure_);
  PostDone(ready_, failure_);
  for (auto& [id, model] : models_) {
    if (model.committed) model.awaiting_plan.push_back(std::exchange(model.committed, {}));
    for (auto& waiting : std::exchange(model.awaiting_plan, {})) {
      env_.completions.Post([done = std::move(waiting), reason = failure_] { done(reason); });
    }
  }
  PostDone(left_, ended_well_ ? OkStatus() : failure_);
  // A product under way still writes a gradient. Behind it, and behind the completion that its end
  // posts, there is nothing in flight any more.
  env_.compute.Post([this, weak = std::weak_ptr<Node*>(alive_), &io = env_.io] {
    io.Post([this, weak, &io] {
      io.Post([this, weak] {
        if (weak.lock()) TellOver();
      });
    });
  });
}

void Node::TellOver() {
  over_ = true;
  for (Completion& waiting : std::exchange(awaiting_end_, {})) {
    PostDone(waiting, ended_well_ ? OkStatus() : failure_);
  }
}

}  // namespace poseidon::session
