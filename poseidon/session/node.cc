// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/node.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "poseidon/base/check.h"
#include "poseidon/plan/hosts.h"
#include "poseidon/session/exchanges.h"

namespace poseidon::session {

// Rooms are made in the order in which they need one another; what is called only later is bound here.
Node::Node(const NodeEnvironment& environment, const NodeOptions& options,
           UniqueFunction<void(const Status&)> on_failure)
    : member_(environment, options, *this,
              [this](const wire::Message& message) { static_cast<void>(OnMessage(member_.self, message)); }),
      ending_(member_, {.on_failure = std::move(on_failure),
                        .stop = [this] { formation_.Stop(); },
                        .close = [this](bool orderly, Task then) { lanes_.Close(member_.failure, orderly, std::move(then)); },
                        .settle = [this](Task then) { SettleLanes(std::move(then)); },
                        .abandon = [this] { Abandon(); }}),
      liveness_(member_, ending_, [this](std::vector<wire::Wait>* waits) { AddWaits(waits); }, [this] { return lanes_.work(); }),
      formation_(member_, ending_, liveness_, [this] { OnRoster(); }),
      lanes_(member_, ending_, liveness_, [this](MemberId from, const ByteBuffer& message) { OnLaneMessage(from, message); }),
      router_([this](const wire::FrameHeader& header) {
        return header.model == wire::kCollectiveModel ? collectives_->SinkOf(header.type) : exchanges_.SinkOf(header);
      }),
      models_(member_, ending_, liveness_, formation_, lanes_, exchanges_,
              [this](std::uint16_t lanes, std::function<void()> open) { OpenLanes(lanes, std::move(open)); }) {}

Status Node::Listen() {
  POSEIDON_ASSERT_ON(member_.env.io);
  POSEIDON_RETURN_IF_ERROR(formation_.Listen());
  if (member_.options.hosts_coordinator) MakeCoordinator();
  return OkStatus();
}

void Node::Start(Completion ready) {
  POSEIDON_ASSERT_ON(member_.env.io);
  formation_.Start(std::move(ready));
}

// Made with the listener: whoever connects may join, also before Start.
void Node::MakeCoordinator() {
  const NodeOptions& given = member_.options;
  coordinator::CoordinatorOptions options;
  options.membership.workers = given.workers;
  options.membership.servers = given.servers;
  options.membership.form_within = given.join_timeout;
  options.membership.liveness = given.liveness;
  options.membership.strategy = given.strategy.name;
  options.planning = sync::PlanningUnder(given.strategy, given.planning);
  options.progress = given.progress;
  options.levels = given.levels;
  options.lanes = given.lanes;
  options.final_plan_step = given.final_plan_step;
  coordinator_ = std::make_unique<coordinator::Coordinator>(member_.env.io, *this, member_.env.log, options);
  member_.coordinator = coordinator_.get();
}

// Layers are exchanged among workers, or among hosts by their leaders, each a part; one-off keys, and factors on one host, always
// among workers.
void Node::OnRoster() {
  // First, because the exchanges of layers are wrapped in it. A dedicated server combines with nobody.
  if (member_.levelled() && is_worker()) MakeHostLevel();
  collectives_.emplace(member_.env.io, member_.mesh, member_.Flat(), member_.options.strategy,
                       [this](const Status& why) { Abort(JobFailure(why)); });
  member_.mesh.RouteExchanges(router_);
}

// No frame of a layer comes before every member has set up its layers, hence its lanes.
void Node::OpenLanes(std::uint16_t lanes, std::function<void()> open) {
  const sync::ExchangeEnvironment env{.io = member_.env.io,
                                      .compute = member_.env.compute,
                                      .mesh = member_.mesh,
                                      .among = member_.Among(),
                                      .flat = member_.Flat(),
                                      .engine = member_.env.engine,
                                      .trace = member_.env.trace,
                                      .strategy = member_.options.strategy,
                                      .lane = member_.ShareOf(lanes),
                                      .fail = [this](const Status& why) { Abort(JobFailure(why)); }};
  lanes_.Open(lanes, env, [this, env, open = std::move(open)] {
    exchanges_ = MakeExchanges(env, lanes_, host_level_.get(), member_.env.device);
    open();
  });
}

void Node::MakeHostLevel() {
  const std::vector<std::uint16_t> ranks =
      plan::RanksOf(member_.host_of_rank, member_.host_of_rank[member_.rank.value()]);
  const std::vector<MemberId> worker_of_rank = member_.Flat().worker_of_rank;
  std::vector<MemberId> members;
  members.reserve(ranks.size());
  for (const std::uint16_t rank : ranks) members.push_back(worker_of_rank[rank]);
  local::HostLevel::Place place{.members = std::move(members),
                                .place = member_.place_on_host(),
                                .leaders = member_.leaders(),
                                .self_rank = member_.rank};
  host_level_ = std::make_unique<local::HostLevel>(member_.env.io, member_.mesh, std::move(place), member_.env.trace);
  member_.mesh.Route(wire::FrameType::kLocal, *host_level_);
  models_.UseHostLevel(host_level_.get());
}

// ---- messages

Status Node::OnControl(MemberId from, ConstBytes bytes) {
  POSEIDON_ASSIGN_OR_RETURN(wire::Message message, wire::Decode(bytes));
  return OnMessage(from, message);
}

Status Node::OnMessage(MemberId from, const wire::Message& message) {
  POSEIDON_ASSERT_ON(member_.env.io);
  // After the end messages may still arrive while the last ones leave. They change nothing.
  if (member_.phase == Phase::kEnded) return OkStatus();
  const bool from_coordinator = from == kCoordinatorMember;
  if (coordinator_ != nullptr && from != member_.self) coordinator_->OnHeard(from, member_.env.io.now());
  return std::visit(
      Overloaded{
          [&](const wire::Welcome& m) {
            return from_coordinator ? formation_.OnWelcome(m) : DataLoss("only the coordinator welcomes");
          },
          [&](const wire::AllReached& m) {
            if (!from_coordinator) return DataLoss("only the coordinator says that all have come so far");
            OnAllReached(m);
            return OkStatus();
          },
          [&](const wire::Agreed& m) {
            return from_coordinator ? models_.OnAgreed(m) : DataLoss("only the coordinator makes plans");
          },
          [&](const wire::Abort& m) { return liveness_.OnAbort(from, m); },
          [&](const wire::Suspect& m) { return OnSuspect(from, m); },
          [&](const wire::Segment& m) { return models_.OnSegment(from, m); },
          [&](const wire::LaneAddress& m) {
            lanes_.OnAddress(from, m);
            return OkStatus();
          },
          [&](const wire::Echo& m) {
            formation_.OnEcho(from, m);
            return OkStatus();
          },
          [&](const wire::ProbeReport& m) {
            formation_.OnProbeReport(from, m);
            return OkStatus();
          },
          [&](const auto& m) {
            if (coordinator_ != nullptr) return coordinator_->OnMessage(from, m);
            return DataLoss("a control message came that is not for this member");
          },
      },
      message);
}

void Node::OnAllReached(const wire::AllReached& reached) {
  switch (reached.stage) {
    case wire::Stage::kConnected:
      return formation_.OnAllConnected();
    case wire::Stage::kMeasured:
      return formation_.OnAllMeasured();
    case wire::Stage::kDeclared:
      return models_.OnAllDeclared(reached.model);
    case wire::Stage::kDone:
      return OnAllDone();
  }
}

Status Node::OnSuspect(MemberId from, const wire::Suspect& suspect) {
  if (coordinator_ != nullptr) return coordinator_->OnMessage(from, suspect);
  // A loss is judged in one place, so that there is one verdict.
  if (suspect.lost) return DataLoss("only the coordinator gets reports of lost members");
  liveness_.Weigh(coordinator::PeerSuspected{from, suspect.about, suspect.heard_again});
  return OkStatus();
}

// A peer says nothing on its lanes but why it ends their connection.
void Node::OnLaneMessage(MemberId from, const ByteBuffer& message) {
  if (const Status status = OnControl(from, message); !status.ok()) liveness_.OnPeerClosed(from, status);
}

Status Node::OnIntroduction(const std::shared_ptr<messaging::Channel>& stranger, ConstBytes message) {
  return formation_.OnIntroduction(stranger, message);
}
ByteBuffer Node::LastWords(MemberId peer, const Status& reason) { return liveness_.LastWords(peer, reason); }
void Node::OnPeerClosed(MemberId peer, const Status& reason) { liveness_.OnPeerClosed(peer, reason); }
void Node::OnStrangerClosed(const messaging::Channel& stranger, const Status& reason) {
  formation_.OnStrangerClosed(stranger, reason);
}

void Node::SendToMember(MemberId member, const wire::Message& message) { member_.SendTo(member, message); }
void Node::SendToJoiner(coordinator::ConnectionId connection, const wire::Message& message) {
  formation_.SendToJoiner(connection, message);
}
void Node::SendToStrangers(const wire::Message& message) {
  member_.mesh.SendControlToStrangers(wire::Encode(message));
}
void Node::AdmitJoiner(coordinator::ConnectionId connection, MemberId member) {
  formation_.AdmitJoiner(connection, member);
}
void Node::DismissJoiner(coordinator::ConnectionId connection) { formation_.DismissJoiner(connection); }

void Node::OnVerdict(const coordinator::AbortAll& verdict) {
  ending_.End(Status(coordinator_->verdict_code(), verdict.reason, StatusScope::kJob, CulpritOf(verdict.culprit)));
}

// ---- collectives

// Wraps `done` so that it runs on the completions executor; a failure becomes an echo of the job's, where there is one.
Completion Node::OnCompletions(Completion done) {
  auto shared = std::make_shared<Completion>(std::move(done));
  const auto post = [shared, &completions = member_.env.completions](const Status& status) {
    completions.Post([shared, status] { (*shared)(status); });
  };
  return alive_.Guard(
      [this, post](const Status& status) {
        post(status.ok() || member_.failure.ok() ? status : member_.failure);
      },
      post);
}

bool Node::MayCollect(Completion& done) {
  if (member_.phase != Phase::kEnded && collectives_ && is_worker()) {
    liveness_.Called();
    return true;
  }
  member_.PostDone(done, member_.failure.ok() ? FailedPrecondition("a collective was called before the start")
                                              : member_.failure);
  return false;
}

void Node::Collective(TensorView view, bool contribute, Completion done) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (MayCollect(done)) collectives_->Sum(view, contribute, OnCompletions(std::move(done)));
}

void Node::Broadcast(TensorView view, Rank root, Completion done) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (MayCollect(done)) collectives_->Broadcast(view, root, OnCompletions(std::move(done)));
}

void Node::StepSum(ModelId model, Step step, TensorView view, Completion done) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (MayCollect(done)) collectives_->StepSum(model, step, view, OnCompletions(std::move(done)));
}

// ---- observation

LaneTotals Node::OwnTotals() const {
  POSEIDON_ASSERT_ON(member_.env.io);
  LaneTotals own{.traffic = member_.mesh.traffic(),
                 .wire = member_.mesh.wire_counters(),
                 .allocated_bytes = exchanges_.allocated_bytes(),
                 .declared_bytes = exchanges_.declared_bytes()};
  if (collectives_) own.allocated_bytes += collectives_->allocated_bytes();
  if (host_level_) own.allocated_bytes += host_level_->allocated_bytes();
  return own;
}

void Node::Collect(UniqueFunction<void(const LaneTotals&)> done) {
  lanes_.Collect([own = OwnTotals(), done = std::move(done)](const LaneTotals& others) mutable {
    own += others;
    done(own);
  });
}

std::optional<sync::OwnMemory> Node::MemoryOf(ModelId model, LayerId layer) const {
  POSEIDON_ASSERT_ON(member_.env.io);
  return exchanges_.MemoryOf({model, layer});
}

std::uint64_t Node::local_bytes(ModelId model, LayerId layer) const {
  POSEIDON_ASSERT_ON(member_.env.io);
  return host_level_ ? host_level_->moved_bytes(model, layer) : 0;
}

void Node::AddWaits(std::vector<wire::Wait>* waits) const {
  exchanges_.AddWaits(waits);
  if (collectives_) collectives_->AddWaits(waits);
  if (host_level_) host_level_->AddWaits(waits);
}

std::optional<wire::Wait> Node::FirstWait() const {
  POSEIDON_ASSERT_ON(member_.env.io);
  std::vector<wire::Wait> waits;
  AddWaits(&waits);
  std::erase_if(waits, [](const wire::Wait& wait) { return wait.on.empty(); });
  const auto first = std::min_element(waits.begin(), waits.end(), ShowsMore);
  return first == waits.end() ? std::nullopt : std::optional(*first);
}

// ---- the end

void Node::Leave(Completion done) {
  POSEIDON_ASSERT_ON(member_.env.io);
  liveness_.Called();
  ending_.Leave(std::move(done));
  // From now on a peer's end is no evidence: it may have heard that all are done before this member does.
  liveness_.Weigh(coordinator::OwnDone{});
}

// The connections may end now, in any order, once the last messages have left.
void Node::OnAllDone() {
  liveness_.Weigh(coordinator::FinishHeard{});
  ending_.End(OkStatus());
}

// What runs in a lane posts there at most once more (a completion is never called within the call that leads to it).
void Node::SettleLanes(Task then) {
  lanes_.Collect(alive_.Guard([this, then = std::move(then)](const LaneTotals&) mutable {
    lanes_.Collect([then = std::move(then)](const LaneTotals&) { then(); });
  }));
}

void Node::Abandon() {
  exchanges_.Abandon(member_.failure);
  if (collectives_) collectives_->Abandon(member_.failure);
  if (host_level_) host_level_->Abandon(member_.failure);
  formation_.Abandon();
  models_.Abandon();
}

}  // namespace poseidon::session
