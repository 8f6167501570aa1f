// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/models.h"

#include <algorithm>
#include <string>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/plan/plan_model.h"
#include "poseidon/plan/send_order.h"
#include "poseidon/wire/plan_codec.h"

namespace poseidon::session {
Models::Models(Member& member, Ending& ending, Liveness& liveness, Formation& formation, Lanes& lanes,
               const sync::Exchanges& exchanges, std::function<void(std::uint16_t, std::function<void()>)> open)
    : member_(member),
      ending_(ending),
      liveness_(liveness),
      formation_(formation),
      lanes_(lanes),
      exchanges_(exchanges),
      open_(std::move(open)) {}

void Models::Commit(ModelId model, std::vector<plan::LayerSpec> layers, DeviceTests by_device, PlanTaker done) {
  POSEIDON_ASSERT_ON(member_.env.io);
  POSEIDON_CHECK(model.value() < wire::kMaxModels, "a session has few models");
  if (member_.phase == Phase::kEnded) {
    member_.env.completions.Post([done = std::move(done), reason = member_.failure] { done(reason); });
    return;
  }
  liveness_.Called();
  models_[model].committed = std::move(done);
  Declare(model, std::move(layers), std::move(by_device));
}

// Products take a while: they run on the compute executor, and the declaration leaves when they are over.
void Models::Declare(ModelId model, std::vector<plan::LayerSpec> layers, DeviceTests by_device) {
  const DeclarationOptions options{.model = model,
                                   .workers = member_.options.workers,
                                   .measure_copies = member_.levelled() && member_.options.probe_bytes != 0};
  auto declared = alive_.Guard([this](Result<wire::Declare> declare) {
    if (member_.phase == Phase::kEnded) return;
    if (!declare.ok()) return ending_.Abort(declare.status());
    declare->bandwidth = formation_.link().bytes_per_second;
    declare->latency = formation_.link().latency_seconds;
    declare->cores = member_.options.cores;
    declare->compute_threads = member_.options.compute_threads;
    declare->cpu_seconds_per_wire_byte = member_.options.cpu_seconds_per_wire_byte;
    member_.SendTo(kCoordinatorMember, *declare);
  });
  // Nothing in this task touches this object: it may be gone by then, and the guard is only asked on the I/O executor.
  member_.env.compute.Post([options, layers = std::move(layers), by_device = std::move(by_device),
                            engine = member_.env.engine, &compute = member_.env.compute, &io = member_.env.io,
                            declared = std::move(declared)]() mutable {
    io.Post([declare = MakeDeclaration(options, std::move(layers), by_device, engine, compute),
             declared = std::move(declared)]() mutable { declared(std::move(declare)); });
  });
}

Status Models::OnAgreed(const wire::Agreed& agreed) {
  POSEIDON_ASSERT_ON(member_.env.io);
  POSEIDON_RETURN_IF_ERROR(wire::CheckPlanFits(agreed.plan, agreed.layers));
  // A plan comes from the network, and its owners have to be members of this roster.
  const auto servers = static_cast<std::size_t>(
      std::count_if(member_.roster.begin(), member_.roster.end(), [](const wire::RosterEntry& entry) {
        return entry.role == wire::Role::kServer;
      }));
  if (agreed.plan.cluster.servers != servers ||
      agreed.plan.cluster.workers != member_.roster.size() - servers) {
    return DataLoss("the plan is for other workers and servers than the roster's");
  }
  // A server declares nothing: it learns of a model here.
  if (member_.is_worker() && !models_.contains(agreed.model)) {
    return DataLoss("a plan came for a model that this worker has not declared");
  }
  Model& model = models_[agreed.model];
  if (!model.provisional_plan) {
    if (lanes_.is_opening()) return DataLoss("a model was agreed on before the one before it was set up");
    // Workers that wait for the final plan at different steps would follow two plans in one step.
    if (member_.is_worker() && agreed.final_plan_step != member_.options.final_plan_step) {
      ending_.Abort(Status(StatusCode::kInvalidArgument,
                   "follows the final plan from step " + std::to_string(member_.options.final_plan_step) +
                       " on and worker 0 from step " + std::to_string(agreed.final_plan_step) +
                       ", expected one number",
                   StatusScope::kJob, member_.self.value()));
      return OkStatus();
    }
    SetUpModel(model, agreed);
    return OkStatus();
  }
  if (!model.set_up) return DataLoss("the final plan came before its model was set up");
  if (agreed.plan.layers.size() != model.provisional_plan->layers.size()) {
    return DataLoss("the final plan is not of the layers that were agreed on");
  }
  model.final_plan = agreed.plan;
  FollowPlan(agreed.model, agreed.plan);
  if (!member_.is_worker()) return OkStatus();
  if (flow_follows_plans()) {
    CommitLittleAtTheEnd(model, agreed);
    model.rate = plan::SpreadRate(agreed.plan, agreed.layers);
    SetFlow();
  }
  // The plan is followed before anyone hears of it: the first push by it comes after that.
  for (auto& waiting : std::exchange(model.awaiting_plan, {})) {
    member_.env.completions.Post([done = std::move(waiting), plan = *model.final_plan] { done(plan); });
  }
  return OkStatus();
}

void Models::SetUpModel(Model& model, const wire::Agreed& agreed) {
  model.provisional_plan = agreed.plan;
  if (agreed.plan.cluster.host_of_rank != member_.host_of_rank) {
    return ending_.Abort(Status(StatusCode::kInternal, "the plan is for other hosts than the roster's",
                        StatusScope::kJob));
  }
  if (level_ != nullptr) {
    if (const Status shared = level_->Declare(agreed.model, agreed.layers); !shared.ok()) return CannotShare(shared);
  }
  if (lanes_.is_open()) return DeclareLayers(model, agreed);
  open_(agreed.plan.cluster.lanes, alive_.Guard([this, &model, agreed] { DeclareLayers(model, agreed); }));
}

void Models::DeclareLayers(Model& model, const wire::Agreed& agreed) {
  if (agreed.plan.cluster.lanes != lanes_.count()) {
    return ending_.Abort(Status(StatusCode::kInternal, "the plan is for other lanes than those that are open",
                                StatusScope::kJob));
  }
  if (lanes_.count() * member_.sharers_of_link() > 1 && !member_.options.strategy.flow_is_fixed) SetFlow();
  if (const Status enough = member_.CheckBandwidth(lanes_.count()); !enough.ok()) return ending_.Abort(enough);
  if (member_.is_held()) lanes_.Hold(member_.Paces(lanes_.count()), member_.LayerPeers());
  exchanges_.Declare(agreed.model, agreed.layers);
  exchanges_.UsePlan(agreed.model, agreed.plan);
  lanes_.Collect(alive_.Guard([this, &model, agreed](const LaneTotals& others) {
    if (member_.phase != Phase::kEnded) FinishSetUp(model, agreed, exchanges_.declared_bytes() + others.declared_bytes);
  }));
}

// Last: when all have answered, frames of the first step come, for which everything has to be in place in every lane.
void Models::FinishSetUp(Model& model, const wire::Agreed& agreed, std::uint64_t declared_bytes) {
  model.set_up = true;
  if (member_.is_worker()) {
    model.scheduler =
        std::make_unique<schedule::Scheduler>(member_.env.io, member_.env.completions, exchanges_, agreed.model,
                                              agreed.layers.size(), member_.options.strategy);
    model.scheduler->UsePlan(agreed.plan);
  } else if (!CheckMemory(declared_bytes)) {
    return;
  }
  AnswerDeclared(agreed.model);
}

// A dedicated server says what it needs, and ends a job that needs more than it may take.
bool Models::CheckMemory(std::uint64_t needed) {
  const std::string amount = std::to_string((needed + (1u << 20) - 1) >> 20) + " MiB";
  member_.env.log.Log(LogLevel::kNotice, member_.NameOf(member_.self.value()) + " needs " + amount + " for its shard");
  if (member_.options.memory_limit_bytes == 0 || needed <= member_.options.memory_limit_bytes) return true;
  ending_.Abort(Status(StatusCode::kResourceExhausted,
               member_.NameOf(member_.self.value()) + " needs " + amount + " for its shard, but only " +
                   std::to_string(member_.options.memory_limit_bytes >> 20) + " MiB are available; use more servers",
               StatusScope::kJob, member_.self.value()));
  return false;
}

// Over which this member's link is divided, those of the other leaders of its host among them.
std::size_t Models::connections() const { return member_.layer_peers() * lanes_.count() * member_.sharers_of_link(); }

// The first leader of a host measures the link. The others know it by the plan; what they are held to they know themselves.
LinkMeasurement Models::link() const {
  const bool first = models_.empty() || !models_.begin()->second.provisional_plan;
  if (member_.sharers_of_link() == 1 || member_.place_on_host() == 0 || first) return formation_.link();
  const plan::ClusterSpec& cluster = models_.begin()->second.provisional_plan->cluster;
  return {.bytes_per_second = LesserRate(cluster.bandwidth, formation_.link().bytes_per_second),
          .latency_seconds = cluster.latency};
}

// The comparison systems' orders let nothing overtake in time, and what is left of a step is not theirs to spread over.
bool Models::flow_follows_plans() const {
  const sync::Strategy& strategy = member_.options.strategy;
  return strategy.order == messaging::Order::kNextForward && !strategy.flow_is_fixed &&
         link().bytes_per_second > 0 && connections() > 0;
}

// The connections are shared by all models.
void Models::SetFlow() {
  const bool ends = std::ranges::any_of(models_, [](const auto& m) { return m.second.backward_ends; });
  // Every lane of every leader has a thread.
  const messaging::LinkSpeed link =
      SpeedOf(this->link(), member_.options.cpu_seconds_per_wire_byte / (lanes_.count() * member_.sharers_of_link()));
  messaging::Flow flow = ends ? messaging::UrgentFlowFor(link, connections()) : messaging::FlowFor(link, connections());
  // What suffices for one model is not known to suffice for two, whose steps meet anyhow.
  const double rate = models_.size() == 1 ? models_.begin()->second.rate : 0;
  // What one leader carries whole has no other's connections.
  if (rate > 0) flow.pace = rate * member_.sharers_of_link() / static_cast<double>(connections());
  lanes_.SetFlow(flow);
}

// While the backward pass ends, what is committed to the network is in the way of the layers that
// the next forward pass needs first. Which these are depends on this member's link, not on the plan
// alone.
void Models::CommitLittleAtTheEnd(Model& model, const wire::Agreed& agreed) {
  const messaging::LinkSpeed link = SpeedOf(this->link());
  // A contribution waits for what its sender has committed, and its result for what the owner has.
  const double waits = 2 * messaging::DrainSeconds(messaging::FlowFor(link, connections()), link, connections());
  model.scheduler->WatchLast(plan::LastOfBackward(agreed.layers, agreed.plan, waits), [this, &model](bool ends) {
    model.backward_ends = ends;
    SetFlow();
  });
}

void Models::FollowPlan(ModelId model, const plan::Plan& plan) {
  exchanges_.UsePlan(model, plan);
  if (schedule::Scheduler* const of = scheduler(model)) of->UsePlan(plan);
}

// Declared here: also the shared memory is there.
void Models::AnswerDeclared(ModelId model) {
  if (level_ == nullptr || level_->is_ready(model)) member_.SendTo(kCoordinatorMember, wire::Reached{wire::Stage::kDeclared, model});
}

Status Models::OnSegment(MemberId from, const wire::Segment& offer) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (level_ == nullptr) return DataLoss("shared memory is offered to a worker that shares none");
  if (const Status attached = level_->Attach(from, offer); !attached.ok()) {
    CannotShare(attached);
    return OkStatus();
  }
  // The offer may overtake the coordinator's plan, which comes on another connection. Then the answer is left
  // to SetUpModel.
  if (scheduler(offer.model) != nullptr) AnswerDeclared(offer.model);
  return OkStatus();
}

void Models::CannotShare(const Status& reason) {
  ending_.Abort(Status(reason.code(),
               member_.NameOf(member_.self.value()) + " cannot combine with the other workers of its host: " +
                   reason.message() + "; train with --levels=flat",
               StatusScope::kJob));
}

void Models::OnAllDeclared(ModelId id) {
  POSEIDON_ASSERT_ON(member_.env.io);
  const auto found = models_.find(id);
  if (found == models_.end()) return;
  if (level_ != nullptr) level_->Close(id);
  Model& model = found->second;
  if (!model.committed || !model.provisional_plan) return;
  member_.env.completions.Post(
      [done = std::exchange(model.committed, {}), plan = *model.provisional_plan] { done(plan); });
}

void Models::Report(const wire::Measured& measured) {
  POSEIDON_ASSERT_ON(member_.env.io);
  liveness_.Called();
  member_.SendTo(kCoordinatorMember, measured);
}

void Models::AwaitFinalPlan(ModelId id, PlanTaker done) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (member_.phase == Phase::kEnded) {
    member_.env.completions.Post([done = std::move(done), reason = member_.failure] { done(reason); });
    return;
  }
  Model& model = models_[id];
  if (model.final_plan) {
    member_.env.completions.Post([done = std::move(done), plan = *model.final_plan] { done(plan); });
  } else {
    model.awaiting_plan.push_back(std::move(done));
  }
}

schedule::Scheduler* Models::scheduler(ModelId model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? nullptr : found->second.scheduler.get();
}

void Models::Push(ModelId model, LayerId layer, sync::SyncRequest request) {
  POSEIDON_ASSERT_ON(member_.env.io);
  schedule::Scheduler* const of_model = scheduler(model);
  // Pushes are posted from the program's thread, so one may come after the end.
  if (member_.phase == Phase::kEnded || of_model == nullptr) {
    const Status reason =
        member_.failure.ok() ? FailedPrecondition("a layer was pushed before its model was committed")
                      : member_.failure;
    member_.env.completions.Post([done = std::move(request.done), reason] { done(reason); });
    return;
  }
  liveness_.Called();
  of_model->Push(layer, std::move(request));
}

void Models::Arrived(ModelId model, LayerId layer, std::uint64_t elements) {
  POSEIDON_ASSERT_ON(member_.env.io);
  schedule::Scheduler* const of_model = scheduler(model);
  if (member_.phase == Phase::kEnded || of_model == nullptr) return;
  liveness_.Called();
  of_model->Arrived(layer, elements);
}

void Models::Abandon() {
  POSEIDON_ASSERT_ON(member_.env.io);
  for (auto& [id, model] : models_) {
    if (model.scheduler) model.scheduler->Abandon(member_.failure);
    if (model.committed) model.awaiting_plan.push_back(std::exchange(model.committed, {}));
    for (auto& waiting : std::exchange(model.awaiting_plan, {})) {
      member_.env.completions.Post([done = std::move(waiting), reason = member_.failure] { done(reason); });
    }
  }
}

}  // namespace poseidon::session
