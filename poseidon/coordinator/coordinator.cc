// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/coordinator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "poseidon/coordinator/agreement.h"

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
      state_(BeginMembership(options.membership, executor.now())),
      alive_(std::make_shared<Coordinator*>(this)) {
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
  timer_ = executor_.PostAfter(delay, [weak = std::weak_ptr<Coordinator*>(alive_)] {
    if (const auto self = weak.lock()) {
      (*self)->timer_ = 0;
      (*self)->Apply(Tick{});
    }
  });
}

void Coordinator::Apply(const Event& event) {
  Transition transition = Next(std::move(state_), event, executor_.now());
  state_ = std::move(transition.state);
  for (const Action& action : transition.actions) Act(action);
  ArmTimer();
}

void Coordinator::SendToAll(const wire::Message& message) {
  for (const Member& member : state_.members) port_.SendToMember(member.id, message);
}

void Coordinator::Act(const Action& action) {
  std::visit(
      Overloaded{
          [this](const Refuse& refuse) {
            log_.Log(LogLevel::kWarning, "refused a process: " + refuse.reason);
            port_.SendToJoiner(refuse.connection, wire::Refuse{refuse.reason});
            port_.DismissJoiner(refuse.connection);
          },
          [this](const WelcomeAll&) {
            wire::Welcome welcome;
            welcome.generation = state_.options.generation;
            const bool flat = HostOfRank().empty();
            for (const Member& m : state_.members) {
              welcome.roster.push_back(RosterEntryOf(m));
              if (flat) welcome.roster.back().machine.clear();
            }
            for (const Member& m : state_.members) {
              port_.AdmitJoiner(m.connection, m.id);
              welcome.member = m.id;
              port_.SendToMember(m.id, welcome);
            }
          },
          [this](const StartAll&) { SendToAll(wire::Start{}); },
          [this](const NameSuspect& suspect) {
            log_.Log(LogLevel::kWarning, suspect.line);
            if (!suspect.tell) return;
            for (const Member& m : state_.members) {
              if (m.id == MemberId(0)) continue;
              port_.SendToMember(m.id, wire::Suspect{.about = suspect.member,
                                                     .heard_again = suspect.heard_again});
            }
          },
          [this](const AbortAll& verdict) {
            wire::Abort abort;
            abort.generation = state_.options.generation;
            abort.culprit = verdict.culprit ? verdict.culprit->value() : kNoCulprit;
            abort.verdict = true;
            abort.code = static_cast<std::uint8_t>(verdict_code_);
            abort.reason = verdict.reason;
            for (const Member& m : state_.members) {
              if (m.id != MemberId(0)) port_.SendToMember(m.id, abort);
            }
            if (state_.members.empty()) {
              for (const JoinRequest& joiner : state_.joined) {
                if (!joiner.hosts_coordinator) port_.SendToJoiner(joiner.connection, abort);
              }
            }
            port_.OnVerdict(verdict);
          },
          [this](const FinishAll&) { SendToAll(wire::Goodbye{}); },
      },
      action);
}

void Coordinator::OnJoin(ConnectionId connection, const wire::Join& join, bool hosts_coordinator) {
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
  Apply(Joined{std::move(request)});
}

void Coordinator::OnJoinerLost(ConnectionId connection) { Apply(LeftEarly{connection}); }
void Coordinator::OnHeard(MemberId member, std::optional<TimePoint> at) {
  Apply(Heard{member, at});
}
void Coordinator::OnLost(MemberId member, MemberId from, const Status& why) {
  Apply(Lost{member, from, why});
}

void Coordinator::OnOwnAbort(const Status& reason) {
  EndWith(reason, reason.culprit() == kNoCulprit
                      ? std::nullopt
                      : std::optional(MemberId(static_cast<std::uint16_t>(reason.culprit()))));
}

void Coordinator::EndWith(const Status& reason, std::optional<MemberId> culprit) {
  if (ended()) return;
  verdict_code_ = reason.code();
  Apply(Aborted{MemberId(0), culprit, reason.message()});
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
  return std::visit(
      Overloaded{
          [&](const wire::Ready&) {
            Apply(Ready{from});
            return OkStatus();
          },
          [&](const wire::Probed&) {
            if (probed_.insert(from).second && probed_.size() == state_.members.size()) {
              SendToAll(wire::Begin{});
            }
            return OkStatus();
          },
          [&](const wire::Declare& m) { return OnDeclare(from, m); },
          [&](const wire::Declared& m) { return OnDeclared(from, m); },
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
          [&](const wire::Leave&) {
            Apply(Done{from});
            return OkStatus();
          },
          [](const auto&) {
            return DataLoss("a control message came that is not for the coordinator");
          },
      },
      message);
}

// When the last worker has declared, either all agree and the provisional plan goes out, or the job
// ends with the sentence that says who differs where.
Status Coordinator::OnDeclare(MemberId from, const wire::Declare& declare) {
  const Member* worker = WorkerOf(from);
  if (worker == nullptr) return DataLoss("a server declared layers");
  Model& model = models_[declare.model];
  if (model.provisional) return DataLoss("a worker declared a model that is agreed on");
  model.declared.insert_or_assign(worker->rank, declare);
  if (model.declared.size() < state_.options.workers) return OkStatus();

  std::vector<wire::Declare> by_rank;
  for (const auto& [rank, own] : model.declared) by_rank.push_back(own);
  Result<Agreement> agreement = Agree(by_rank, state_.options.servers);
  if (!agreement.ok()) {
    EndWith(agreement.status(), std::nullopt);
    return OkStatus();
  }
  agreement->cluster.host_of_rank = HostOfRank();
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

Status Coordinator::OnDeclared(MemberId from, const wire::Declared& declared) {
  const auto found = models_.find(declared.model);
  if (found == models_.end() || !found->second.provisional ||
      !found->second.acknowledged.insert(from).second) {
    return DataLoss("a member acknowledged a model twice, or one that is not agreed on");
  }
  if (found->second.acknowledged.size() == state_.members.size()) {
    SendToAll(wire::Go{declared.model});
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
  plan->switch_step = Step(options_.final_plan_step);
  SendToAll(wire::Agreed{measured.model, model.layers, *plan, options_.final_plan_step});
  return OkStatus();
}

}  // namespace poseidon::coordinator
