// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/coordinator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/coordinator/agreement.h"
#include "poseidon/wire/frame.h"

namespace poseidon::coordinator {
namespace {

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

wire::RosterEntry RosterEntryOf(const Member& member) {
  return {.member = member.id,
          .role = member.role == Role::kServer ? wire::Role::kServer : wire::Role::kWorker,
          .rank = member.rank,
          .host = member.host,
          .listen_host = member.address,
          .listen_port = member.port,
          .machine = member.machine};
}

}  // namespace

Coordinator::Coordinator(Executor& executor, CoordinatorPort& port, LogSink& log,
                         const CoordinatorOptions& options)
    : executor_(executor),
      port_(port),
      log_(log),
      options_(options),
      state_(BeginMembership(options.membership, executor.now())) {
  ArmTimer();
}

Coordinator::~Coordinator() {
  if (timer_ != 0) executor_.Cancel(timer_);
}

void Coordinator::ArmTimer() {
  if (timer_ != 0) executor_.Cancel(std::exchange(timer_, 0));
  const std::optional<TimePoint> due = NextDeadline(state_);
  if (!due) return;
  const Duration delay = std::max(Duration{0}, *due - executor_.now());
  timer_ = executor_.PostAfter(delay, alive_.Guard([this] {
    timer_ = 0;
    Apply(Tick{});
  }));
}

void Coordinator::Apply(const Event& event) {
  Transition transition = Next(std::move(state_), event, executor_.now());
  // The new state is in place before anything is done: the actions go to the members that it names.
  state_ = std::move(transition.state);
  for (const Action& action : transition.actions) Act(action);
  ArmTimer();
}

void Coordinator::SendToAll(const wire::Message& message) {
  for (const Member& member : state_.members) port_.SendToMember(member.id, message);
}

// To all but the host's own process.
void Coordinator::SendToOthers(const wire::Message& message) {
  for (const Member& member : state_.members) {
    if (member.id != MemberId(0)) port_.SendToMember(member.id, message);
  }
}

void Coordinator::Act(const Action& action) {
  std::visit(
      Overloaded{
          [this](const Refuse& refuse) {
            log_.Log(LogLevel::kWarning, "refused a process: " + refuse.reason);
            port_.SendToJoiner(refuse.connection, wire::Refuse{refuse.reason});
            port_.DismissJoiner(refuse.connection);
          },
          [this](const WelcomeAll&) { Welcome(); },
          [this](const StartAll&) { SendToAll(wire::AllReached{wire::Stage::kConnected, {}}); },
          [this](const NameSuspect& suspect) {
            log_.Log(LogLevel::kWarning, suspect.line);
            // The host's process judges by the same state already.
            if (suspect.tell) SendToOthers(wire::Suspect{.about = suspect.member, .heard_again = suspect.heard_again});
          },
          [this](const AbortAll& verdict) { Announce(verdict); },
          [this](const FinishAll&) { SendToAll(wire::AllReached{wire::Stage::kDone, {}}); },
      },
      action);
}

void Coordinator::Welcome() {
  wire::Welcome welcome;
  welcome.generation = state_.options.generation;
  welcome.bandwidth = state_.bandwidth;
  progress_ = BeginProgress(options_.progress, state_.members);
  // Members find the hosts in the roster's machines. Without machines all stay flat, whatever their own
  // options say (formation.cc, OnWelcome).
  const bool flat = HostOfRank().empty();
  for (const Member& m : state_.members) {
    welcome.roster.push_back(RosterEntryOf(m));
    if (flat) welcome.roster.back().machine.clear();
  }
  for (const Member& m : state_.members) {
    // Only an admitted joiner has a channel under its member id, so it is admitted before it is sent to.
    port_.AdmitJoiner(m.connection, m.id);
    welcome.member = m.id;
    port_.SendToMember(m.id, welcome);
  }
}

void Coordinator::Announce(const AbortAll& verdict) {
  wire::Abort abort;
  abort.generation = state_.options.generation;
  abort.culprit = verdict.culprit ? verdict.culprit->value() : kNoCulprit;
  abort.verdict = true;
  abort.code = static_cast<std::uint8_t>(verdict_code_);
  abort.reason = verdict.reason;
  SendToOthers(abort);
  // Before the welcome there are no members yet: those who have joined must hear why they wait in vain.
  if (state_.members.empty()) port_.SendToStrangers(abort);
  // Last: the host closes every connection now, after what is queued on it.
  port_.OnVerdict(verdict);
}

void Coordinator::OnJoin(ConnectionId connection, const wire::Join& join, bool hosts_coordinator) {
  POSEIDON_ASSERT_ON(executor_);
  JoinRequest request;
  request.connection = connection;
  request.role = join.role == wire::Role::kServer ? Role::kServer : Role::kWorker;
  // A number beyond all ranks stays one, so that it is refused by name.
  if (join.requested_rank >= 0) {
    request.rank = Rank(static_cast<std::uint16_t>(std::min(join.requested_rank, 0xffff)));
  }
  request.hosts_coordinator = hosts_coordinator;
  request.host = join.host;
  request.address = join.listen_host;
  request.port = join.listen_port;
  request.protocol_version = options_.membership.protocol_version;
  request.machine = join.machine;
  request.strategy = join.strategy;
  request.bandwidth = join.bandwidth;
  Apply(Joined{std::move(request)});
}

void Coordinator::OnJoinerLost(ConnectionId connection, const std::string& how, const Status& why) {
  POSEIDON_ASSERT_ON(executor_);
  Apply(LeftEarly{connection, how, why});
}

void Coordinator::OnSlowStart(Duration waited) {
  POSEIDON_ASSERT_ON(executor_);
  const auto give_up = [&](const Member& member, const std::string& what) {
    // The host speaks here, and its name is put before what it says of itself (membership.cc, Aborted).
    const std::string name = member.id == MemberId(0) ? "" : Describe(member) + " ";
    EndWith(Status(StatusCode::kDeadlineExceeded, name + "has not " + what + " within " + InSeconds(waited),
                   StatusScope::kJob),
            member.id);
  };
  // In the order of the start: links are measured when all are connected, so who is not connected holds up the rest.
  for (const Member& member : state_.members) {
    if (!state_.liveness[member.id.value()].ready) return give_up(member, "connected to all other members");
  }
  for (const Member& member : state_.members) {
    if (!probed_.contains(member.id)) return give_up(member, "measured its link");
  }
}

void Coordinator::OnHeard(MemberId member, std::optional<TimePoint> at) {
  POSEIDON_ASSERT_ON(executor_);
  Apply(Heard{member, at});
}
void Coordinator::OnLost(MemberId member, MemberId from, const Status& why) {
  POSEIDON_ASSERT_ON(executor_);
  Apply(Lost{member, from, why});
}

void Coordinator::OnOwnAbort(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  EndWith(reason, reason.culprit() == kNoCulprit
                      ? std::nullopt
                      : std::optional(MemberId(static_cast<std::uint16_t>(reason.culprit()))));
}

void Coordinator::EndWith(const Status& reason, std::optional<MemberId> culprit, bool names) {
  // An abort after the verdict is an echo, whose code must not replace that of the verdict.
  if (ended()) return;
  verdict_code_ = reason.code();
  Apply(Aborted{MemberId(0), culprit, reason.message(), names});
}

std::vector<std::uint32_t> Coordinator::HostOfRank() const {
  std::vector<std::string> machines;
  for (const Member& member : state_.members) {
    if (member.role == Role::kWorker) machines.push_back(member.machine);
  }
  return plan::HostOfRank(machines, options_.levels);
}

const Member* Coordinator::WorkerOf(MemberId member) const {
  if (member.value() >= state_.members.size()) return nullptr;
  const Member& found = state_.members[member.value()];
  return found.role == Role::kWorker ? &found : nullptr;
}

Status Coordinator::OnMessage(MemberId from, const wire::Message& message) {
  POSEIDON_ASSERT_ON(executor_);
  return std::visit(
      Overloaded{
          [&](const wire::Reached& m) { return OnReached(from, m); },
          [&](const wire::Declare& m) { return OnDeclare(from, m); },
          [&](const wire::Measured& m) { return OnMeasured(from, m); },
          [&](const wire::Suspect& m) {
            if (m.lost) {
              Apply(Lost{m.about, from, Status(static_cast<StatusCode>(m.code), m.reason)});
            } else {
              Apply(Suspected{from, m.about, m.heard_again});
            }
            return OkStatus();
          },
          [&](const wire::Abort& m) {
            if (!ended()) verdict_code_ = static_cast<StatusCode>(m.code);
            Apply(Aborted{from,
                          m.culprit == kNoCulprit
                              ? std::nullopt
                              : std::optional(MemberId(static_cast<std::uint16_t>(m.culprit))),
                          m.reason});
            return OkStatus();
          },
          [&](const wire::Progress& m) { return OnProgress(from, m); },
          [](const auto&) {
            return DataLoss("a control message came that is not for the coordinator");
          },
      },
      message);
}

// Who is connected and who is done concerns membership, which may lose a member meanwhile.
Status Coordinator::OnReached(MemberId from, const wire::Reached& reached) {
  switch (reached.stage) {
    case wire::Stage::kConnected:
      Apply(Ready{from});
      break;
    case wire::Stage::kMeasured:
      // Members are counted and not messages: one that reports twice must not count for another.
      if (probed_.insert(from).second && probed_.size() == state_.members.size()) {
        SendToAll(wire::AllReached{wire::Stage::kMeasured, {}});
      }
      break;
    case wire::Stage::kDeclared:
      return OnDeclared(from, reached.model);
    case wire::Stage::kDone:
      Apply(Done{from});
      break;
  }
  return OkStatus();
}

// ---- progress

// Everybody looks at the pace of heartbeats; so does the judge, when its own host has looked.
Status Coordinator::OnProgress(MemberId from, const wire::Progress& progress) {
  if (!progress_ || ended()) return OkStatus();
  ProgressReport report{.at = executor_.now(),
                        .quiet = FromSeconds(progress.quiet_seconds),
                        .idle = FromSeconds(progress.idle_seconds),
                        .blocked = progress.blocked,
                        .busy_with = progress.busy_with};
  for (const wire::Wait& wait : progress.waits) {
    (wait.what == wire::Wait::For::kMean ? report.owed : report.waits).push_back(WaitOf(wait));
  }
  progress_ = Reported(*std::exchange(progress_, std::nullopt), from, std::move(report));
  if (from != MemberId(0)) return OkStatus();

  Standing standing;
  for (const Member& member : state_.members) {
    if (state_.liveness[member.id.value()].done) standing.left.insert(member.id);
    if (state_.liveness[member.id.value()].left) standing.gone.insert(member.id);
  }
  standing.waits = OwnWaits();
  ProgressJudgement judgement =
      JudgeProgress(*std::exchange(progress_, std::nullopt), standing, executor_.now());
  progress_ = std::move(judgement.state);
  if (!judgement.remark.empty()) log_.Log(LogLevel::kWarning, judgement.remark);
  if (!judgement.end) return OkStatus();
  const std::optional<MemberId> culprit = judgement.end->culprit;
  std::string text = judgement.end->reason;
  // The host's own name is put before what it says.
  if (culprit && *culprit != MemberId(0)) text = Describe(state_.members[culprit->value()]) + " " + text;
  // Where nobody is to blame, it is about those that the sentence names, and not about the host.
  EndWith(Status(StatusCode::kDeadlineExceeded, std::move(text), StatusScope::kJob), culprit, !culprit);
  return OkStatus();
}

Wait Coordinator::WaitOf(const wire::Wait& wait) const {
  const auto model = models_.find(wait.model);
  const bool named = model != models_.end() && wait.layer.value() < model->second.layers.size();
  Wait known = InWords(wait, named ? model->second.layers[wait.layer.value()].name : "", models_.size() > 1);
  // The numbers come from the network.
  std::erase_if(known.on, [this](MemberId member) { return member.value() >= state_.members.size(); });
  return known;
}

std::vector<Wait> Coordinator::OwnWaits() const {
  std::vector<Wait> waits;
  // Where no member has done it yet nobody waits for it: the programs are on their way there. Dedicated servers declare
  // and report nothing and leave after the workers. Only the layers' set-up is asked of them too.
  const auto missing = [&](std::string what, const auto& has_told) {
    Wait wait{.what = std::move(what)};
    bool some = false;
    for (const Member& member : state_.members) {
      const std::optional<bool> told = has_told(member);
      some |= told.value_or(false);
      if (told == false) wait.on.push_back(member.id);
    }
    if (some && !wait.on.empty()) waits.push_back(std::move(wait));
  };
  const auto of_workers = [](const auto& told) {
    return [&told](const Member& member) {
      return member.role == Role::kWorker ? std::optional(told.contains(member.rank)) : std::nullopt;
    };
  };
  for (const auto& [id, model] : models_) {
    const std::string of = " of model " + std::to_string(id.value());
    if (!model.provisional) {
      missing("its layers" + of, of_workers(model.declared));
    } else if (model.acknowledged.size() < state_.members.size()) {
      missing("its report that the layers" + of + " are set up",
              [&told = model.acknowledged](const Member& member) { return std::optional(told.contains(member.id)); });
    } else if (!model.planned) {
      missing("its report for the final plan" + of, of_workers(model.measured));
    }
  }
  missing("its end of the job", [&](const Member& member) {
    return member.role == Role::kWorker ? std::optional(state_.liveness[member.id.value()].done) : std::nullopt;
  });
  return waits;
}

// ---- layers and plans

// When the last worker has declared, either all agree and the provisional plan goes out, or the job
// ends with the sentence that says who differs where.
Status Coordinator::OnDeclare(MemberId from, const wire::Declare& declare) {
  const Member* worker = WorkerOf(from);
  if (worker == nullptr) return DataLoss("a server declared layers");
  Model& model = models_[declare.model];
  // A second agreement would pass for the final plan.
  if (model.provisional) return DataLoss("a worker declared a model that is agreed on");
  // By rank, which also counts a worker once that declares twice.
  model.declared.insert_or_assign(worker->rank, declare);
  if (model.declared.size() < state_.options.workers) return OkStatus();

  std::vector<wire::Declare> by_rank;
  for (const auto& [rank, own] : model.declared) by_rank.push_back(own);
  Result<Agreement> agreement = Agree(by_rank, state_.options.servers);
  // Nobody is blamed: the others are only compared with worker 0, and its net may be the wrong one.
  if (!agreement.ok()) {
    EndWith(agreement.status(), std::nullopt);
    return OkStatus();
  }
  agreement->cluster.host_of_rank = HostOfRank();
  // The first model's, because all models go through the same lanes.
  if (!lanes_) lanes_ = options_.lanes > 0 ? options_.lanes : plan::LanesFor(agreement->cluster);
  agreement->cluster.lanes = *lanes_;
  plan::PlanOptions planning = options_.planning;
  planning.products_agree = agreement->products_agree;
  Result<plan::Plan> plan = plan::ProvisionalPlan(agreement->layers, agreement->cluster, planning);
  if (!plan.ok()) {
    EndWith(plan.status(), std::nullopt);
    return OkStatus();
  }
  model.layers = agreement->layers;
  model.products_agree = agreement->products_agree;
  model.cluster = agreement->cluster;
  model.provisional = *plan;
  SendToAll(wire::Agreed{declare.model, model.layers, *plan, options_.final_plan_step});
  return OkStatus();
}

Status Coordinator::OnDeclared(MemberId from, ModelId model) {
  const auto found = models_.find(model);
  if (found == models_.end() || !found->second.provisional ||
      !found->second.acknowledged.insert(from).second) {
    return DataLoss("a member acknowledged a model twice, or one that is not agreed on");
  }
  if (found->second.acknowledged.size() == state_.members.size()) {
    SendToAll(wire::AllReached{wire::Stage::kDeclared, model});
  }
  return OkStatus();
}

// The last report makes the final plan, from its switch step on.
Status Coordinator::OnMeasured(MemberId from, const wire::Measured& measured) {
  const Member* worker = WorkerOf(from);
  const auto found = models_.find(measured.model);
  if (worker == nullptr || found == models_.end() || !found->second.provisional ||
      measured.layers.size() != found->second.layers.size()) {
    return DataLoss("measurements came that fit no declared model");
  }
  Model& model = found->second;
  if (model.planned) return OkStatus();  // a worker that reports again changes no plan
  model.measured.insert_or_assign(worker->rank, measured);
  if (model.measured.size() < state_.options.workers) return OkStatus();

  std::vector<wire::Measured> by_rank;
  for (const auto& [rank, own] : model.measured) by_rank.push_back(own);
  plan::PlanOptions planning = options_.planning;
  planning.products_agree = model.products_agree;
  Result<plan::Plan> plan =
      plan::MakePlan(model.layers, model.cluster,
                     Combine(by_rank, model.layers, *model.provisional), planning);
  if (!plan.ok()) {
    EndWith(plan.status(), std::nullopt);
    return OkStatus();
  }
  model.planned = true;
  plan->epoch = PlanEpoch(1);
  // All workers wait at this step for this plan, so none can miss the switch (docs/decisions/verdicts.md).
  plan->switch_step = Step(options_.final_plan_step);
  SendToAll(wire::Agreed{measured.model, model.layers, *plan, options_.final_plan_step});
  return OkStatus();
}

}  // namespace poseidon::coordinator
