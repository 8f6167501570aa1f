// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/model.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "poseidon/session/blocking_node.h"

namespace poseidon::session {
namespace {

// Steps before the final plan's at which what was measured is reported: early enough that the plan is there when its step
// begins.
constexpr std::uint64_t kReportAhead = 2;

std::string Named(const plan::LayerSpec& layer) { return "layer '" + layer.name + "'"; }

}  // namespace

Model::Model(BlockingNode& node, ModelId id, const Place& place)
    : node_(node), id_(id), place_(place), pace_(place.rank, place.workers) {}
Model::~Model() = default;

// ---- declaring

Result<LayerId> Model::Declare(plan::LayerSpec layer, std::optional<factors::ProductTest> by_device) {
  if (committed()) return FailedPrecondition(Named(layer) + " was declared after the model was committed");
  POSEIDON_RETURN_IF_ERROR(plan::Validate({&layer, 1}));
  if (specs_.size() >= plan::kMaxLayers) {
    return InvalidArgument(Named(layer) + " is one more than the " + std::to_string(plan::kMaxLayers) +
                           " layers that a model may have");
  }
  if (layer.is_multiplied_by_device() != by_device.has_value()) {
    return InvalidArgument(Named(layer) + (by_device ? " has a test product of a device, which does not multiply for it"
                                                     : " is multiplied by a device, expected a test product of it"));
  }
  if (!names_.insert(layer.name).second) return InvalidArgument("two layers are named '" + layer.name + "'");
  if (by_device) device_tests_.emplace(specs_.size(), *by_device);
  specs_.push_back(std::move(layer));
  return LayerId(static_cast<std::uint32_t>(specs_.size() - 1));
}

bool Model::committed() const {
  MutexLock lock(mutex_);
  return provisional_plan_.has_value();
}

Status Model::CheckLayer(LayerId layer) const {
  if (!committed()) return FailedPrecondition("the model has not been committed");
  if (layer.value() < specs_.size()) return OkStatus();
  return InvalidArgument("layer " + std::to_string(layer.value()) + " does not exist, the model has " +
                         std::to_string(specs_.size()));
}

// Calls `start(node, take)` on the I/O executor and blocks until `take` is given the plan, or why there is none.
Result<plan::Plan> Model::AwaitPlan(UniqueFunction<void(Node&, PlanTaker)> start) {
  auto promise = std::make_shared<std::promise<Result<plan::Plan>>>();
  std::future<Result<plan::Plan>> future = promise->get_future();
  node_.Post([start = std::move(start), promise](Node& node) {
    start(node, [promise](Result<plan::Plan> plan) { promise->set_value(std::move(plan)); });
  });
  return node_.Get(std::move(future));
}

Result<plan::Plan> Model::Commit() {
  if (committed()) return FailedPrecondition("the model was committed before");
  if (specs_.empty()) return FailedPrecondition("a model without layers was committed");
  POSEIDON_RETURN_IF_ERROR(node_.CheckMayBlock());
  Result<plan::Plan> plan = AwaitPlan(
      [this](Node& node, PlanTaker take) { node.Commit(id_, specs_, std::move(take), device_tests_); });
  if (!plan.ok()) return plan;
  MutexLock lock(mutex_);
  layers_ = std::vector<Layer>(specs_.size());
  requests_ = std::vector<sync::SyncRequest>(specs_.size());
  for (std::uint32_t i = 0; i < specs_.size(); ++i) {
    // Under no other scheme does a layer gather that does not under this one.
    const bool may = Gathers(LayerId(i), plan::Scheme::kFactorBroadcast);
    gathered_.push_back(may ? std::make_unique<factors::GatheredRows>() : nullptr);
  }
  clock_.emplace(static_cast<int>(specs_.size()));
  plans_.emplace(specs_.size());
  plans_->Use(*plan);
  provisional_plan_ = *plan;
  return plan;
}

Result<plan::Plan> Model::Commit(std::vector<plan::LayerSpec> layers) {
  for (plan::LayerSpec& layer : layers) POSEIDON_RETURN_IF_ERROR(Declare(std::move(layer)).status());
  return Commit();
}

// ---- plans

Result<const plan::Plan*> Model::BeginStep(Step step, Wish wish, double on_device) {
  POSEIDON_RETURN_IF_ERROR(node_.failure());
  POSEIDON_RETURN_IF_ERROR(node_.CheckMayBlock());
  if (!committed()) return FailedPrecondition("a step began before the layers were committed");
  const std::uint64_t final_step = place_.final_plan_step;
  // Before the report, because it ends the clock's iteration: the means then include the step that has just ended.
  BeginPace(step, wish, on_device);
  if (step.value() + kReportAhead >= final_step) ReportMeasured();
  if (!final_plan_ && step.value() >= final_step) {
    // The coordinator waits for every worker's report, so the plan would never come.
    if (!reported_) {
      return FailedPrecondition("step " + std::to_string(step.value()) +
                                " follows the final plan, which waits for this worker's report");
    }
    Result<plan::Plan> plan =
        AwaitPlan([this](Node& node, PlanTaker take) { node.AwaitFinalPlan(id_, std::move(take)); });
    if (!plan.ok()) return plan.status();
    MutexLock lock(mutex_);
    plans_->Use(*plan);
    final_plan_ = *std::move(plan);
  }
  return &plan();
}

std::optional<plan::Plan> Model::NewestPlan() const {
  MutexLock lock(mutex_);
  return final_plan_ ? final_plan_ : provisional_plan_;
}

Result<plan::Scheme> Model::SchemeOf(LayerId layer, Step step) const {
  POSEIDON_RETURN_IF_ERROR(CheckLayer(layer));
  MutexLock lock(mutex_);
  // By the provisional plan this worker would push what the others, who have the final one, do not expect.
  if (!final_plan_ && step.value() >= place_.final_plan_step) {
    return FailedPrecondition("step " + std::to_string(step.value()) +
                              " follows the final plan, which the step's begin has to bring");
  }
  return plans_->At(step).by_layer[layer.value()].scheme;
}

bool Model::Gathers(LayerId layer, plan::Scheme scheme) const {
  const plan::LayerSpec& spec = specs_.at(layer.value());
  if (spec.is_table()) return true;
  return spec.is_multiplied_by_device() && scheme == plan::Scheme::kFactorBroadcast;
}

std::optional<sync::OwnMemory> Model::MemoryOf(LayerId layer) {
  std::optional<sync::OwnMemory> memory;
  node_.Run([&](const Node& node) { memory = node.MemoryOf(id_, layer); });
  if (memory) {
    MutexLock lock(mutex_);
    layers_[layer.value()].brought = memory->brought;
  }
  return memory;
}

bool Model::HasGathered(LayerId layer) const {
  MutexLock lock(mutex_);
  const std::optional<Step>& last = layers_.at(layer.value()).last;
  return last && Gathers(layer, plans_->At(*last).by_layer[layer.value()].scheme);
}

// ---- pushing and waiting

Result<plan::Scheme> Model::Check(LayerId layer, const session::Push& push) const {
  POSEIDON_ASSIGN_OR_RETURN(const plan::Scheme scheme, SchemeOf(layer, push.step));
  const plan::LayerSpec& spec = specs_[layer.value()];
  const bool as_factors = push.factors.has_value();
  if (push.in_parts && (as_factors || push.absent || push.on_device)) {
    // A device's gradient leaves in parts by itself (sync/staged_exchange.h).
    return InvalidArgument(Named(spec) + " was pushed in parts " +
                           (as_factors    ? spec.is_table() ? "as rows" : "as factors"
                            : push.absent ? "as absent"
                                          : "on a device") +
                           ", expected a whole gradient in host memory");
  }
  if (spec.is_table() && !as_factors) {
    return FailedPrecondition(Named(spec) + " was pushed dense, expected the rows of a table");
  }
  if (as_factors != plan::TakesFactors(scheme)) {
    return FailedPrecondition(Named(spec) + " was pushed " + (as_factors ? "as factors" : "dense") +
                              ", but the plan's scheme for step " + std::to_string(push.step.value()) + " is " +
                              std::string(plan::NameOf(scheme)));
  }
  if (spec.is_table()) {
    const auto* const indices = reinterpret_cast<const std::int64_t*>(push.factors->u);
    for (std::uint32_t i = 0; i < push.factors->rows; ++i) {
      if (spec.factors->has_entry(indices[i])) continue;
      return InvalidArgument("row " + std::to_string(i) + " of " + Named(spec) + " is of entry " +
                             std::to_string(indices[i]) + ", expected 0 to " + std::to_string(spec.factors->outputs - 1));
    }
    return scheme;
  }
  if (Gathers(layer, scheme)) return scheme;
  if (push.gradient.elements != spec.elements || push.gradient.dtype != spec.dtype) {
    return InvalidArgument("the gradient of " + Named(spec) + " has " + std::to_string(push.gradient.elements) +
                           " elements of " + std::string(poseidon::NameOf(push.gradient.dtype)) + ", expected " +
                           std::to_string(spec.elements) + " of " + std::string(poseidon::NameOf(spec.dtype)));
  }
  return scheme;
}

// A push out of turn is refused here, before it can disturb the one under way.
Status Model::Push(LayerId id, session::Push push) {
  POSEIDON_RETURN_IF_ERROR(node_.failure());
  POSEIDON_ASSIGN_OR_RETURN(const plan::Scheme scheme, Check(id, push));
  const bool only_wakes = !push.landed;
  {
    MutexLock lock(mutex_);
    Layer& layer = layers_[id.value()];
    const auto refused = [&](const std::string& why) {
      return FailedPrecondition(Named(specs_[id.value()]) + " was pushed for step " +
                                std::to_string(push.step.value()) + why);
    };
    if (layer.last && push.step <= *layer.last) {
      return refused(" after step " + std::to_string(layer.last->value()));
    }
    if (layer.waiting) {
      return refused(" before its step " + std::to_string(layer.last->value()) + " had landed");
    }
    // On one host the product would write over factors there that still leave, and on several the mean lands elsewhere.
    if (push.factors && push.gradient.memory >= layer.brought.data() && push.gradient.memory < layer.brought.data() + layer.brought.size()) {
      return InvalidArgument("the factors of " + Named(specs_[id.value()]) +
                             " were pushed with a gradient in the session's own memory, expected other memory");
    }
    // Noted before the request is posted: its completion may fire on another thread before this call returns.
    layer.waiting = true;
    layer.last = push.step;
    layer.rows = push.factors ? push.factors->rows : push.rows;
    layer.arrived = push.in_parts ? std::optional<std::uint64_t>(0) : std::nullopt;
    layer.landed = std::move(push.landed);
  }
  sync::SyncRequest& request = requests_[id.value()] = {push};
  if (Gathers(id, scheme)) request.gathered = gathered_[id.value()].get();
  request.done = [this, id](const Status& status) { Complete(id, status); };
  request.only_wakes = only_wakes;
  // The request stays here until it is taken over there: what is posted would not hold it without memory of its own.
  node_.Post([this, id](Node& node) { node.Push(id_, id, std::move(requests_[id.value()])); });
  return OkStatus();
}

Status Model::Arrived(LayerId id, std::uint64_t elements) {
  POSEIDON_RETURN_IF_ERROR(node_.failure());
  POSEIDON_RETURN_IF_ERROR(CheckLayer(id));
  const plan::LayerSpec& spec = specs_[id.value()];
  {
    MutexLock lock(mutex_);
    std::optional<std::uint64_t>& arrived = layers_[id.value()].arrived;
    if (!arrived) return FailedPrecondition("a part of " + Named(spec) + " arrived, which has no push in parts under way");
    if (elements < *arrived || elements > spec.elements) {
      return InvalidArgument(std::to_string(elements) + " numbers of " + Named(spec) + " have arrived, expected " +
                             std::to_string(*arrived) + " to " + std::to_string(spec.elements));
    }
    if (elements == *arrived) return OkStatus();
    arrived = elements == spec.elements ? std::nullopt : std::optional(elements);
  }
  node_.Post([model = id_, id, elements](Node& node) { node.Arrived(model, id, elements); });
  return OkStatus();
}

void Model::Complete(LayerId layer, const Status& status) {
  Completion landed;
  bool awaited = false;
  {
    MutexLock lock(mutex_);
    Layer& of = layers_[layer.value()];
    of.waiting = false;
    of.status = status;
    landed = std::move(of.landed);
    awaited = of.awaited > 0;
  }
  // Without the lock, which the woken thread takes first. A thread that waits for other layers only is not woken.
  if (awaited) landed_.NotifyAll();
  // The program's code runs without the lock, which Push, Landed and Wait take.
  if (landed) landed(status);
}

LayerId Model::WaitAny(std::span<const LayerId> layers) {
  POSEIDON_CHECK(!layers.empty(), "somebody is waited for");
  MutexLock lock(mutex_);
  std::optional<LayerId> found = FirstLanded(layers);
  if (found) return *found;
  for (const LayerId layer : layers) ++layers_[layer.value()].awaited;
  const FrontEnd::Blocked blocked(node_.front_end());
  const TimePoint begin = node_.now();
  while (!found) {
    const auto look = std::chrono::steady_clock::now() + kInterruptedEvery;
    while (!found && landed_.WaitUntil(lock, look)) found = FirstLanded(layers);
    if (found) break;
    // The program's code runs without the lock, so that means land meanwhile. Their notification is missed, hence the
    // look after it.
    lock.Unlock();
    node_.EndIfInterrupted();
    lock.Lock();
    found = FirstLanded(layers);
  }
  for (const LayerId layer : layers) --layers_[layer.value()].awaited;
  const TimePoint end = node_.now();
  AddWaited(end - begin);
  if (TraceRecorder* const trace = place_.trace; trace != nullptr) {
    const LayerId wanted = layers.front();
    trace->Record({TraceLane::kWait, static_cast<std::int32_t>(wanted.value()),
                   layers_[wanted.value()].last->value(), begin, end, 0, "wait", id_.value()});
  }
  return *found;
}

std::optional<LayerId> Model::FirstLanded(std::span<const LayerId> layers) const {
  for (const LayerId layer : layers) {
    if (!layers_.at(layer.value()).waiting) return layer;
  }
  return std::nullopt;
}

void Model::AddWaited(Duration time) {
  waited_ += time;
  step_waited_ += ToSeconds(time);
}

void Model::Waited(Duration time) {
  MutexLock lock(mutex_);
  AddWaited(time);
}

Status Model::Wait(LayerId layer) {
  if (!Landed(layer)) POSEIDON_RETURN_IF_ERROR(node_.CheckMayBlock());
  WaitAny({&layer, 1});
  const Status failure = node_.failure();
  MutexLock lock(mutex_);
  // The status of a layer is an echo of the job's failure, where there is one.
  const Status& status = layers_.at(layer.value()).status;
  return status.ok() || failure.ok() ? status : failure;
}

bool Model::Landed(LayerId layer) const {
  MutexLock lock(mutex_);
  return !layers_.at(layer.value()).waiting;
}

// ---- what the layers take

void Model::Timed(LayerId layer, Pass pass, Step step, TimePoint begin, TimePoint end) {
  {
    MutexLock lock(mutex_);
    const int index = static_cast<int>(layer.value());
    pass == Pass::kForward ? clock_->AddForward(index, end - begin) : clock_->AddBackward(index, end - begin);
    timed_ = true;
  }
  if (TraceRecorder* const trace = place_.trace; trace != nullptr) {
    trace->Record({TraceLane::kCompute, static_cast<std::int32_t>(layer.value()), step.value(), begin, end, 0,
                   pass == Pass::kForward ? "forward" : "backward", id_.value()});
  }
}

void Model::ReportMeasured() {
  if (reported_) return;
  if (measure_) return Report(measure_());
  std::vector<wire::Measured::Layer> measured(specs_.size());
  {
    MutexLock lock(mutex_);
    // Zeros would pass for layers that take no time. An engine that times nothing calls Report itself.
    if (!timed_) return;
    const std::vector<plan::LayerSeconds> means = clock_->Means();
    for (std::size_t i = 0; i < measured.size(); ++i) {
      measured[i] = {means[i].forward, means[i].backward, layers_[i].rows};
    }
  }
  Report(std::move(measured));
}

void Model::Report(std::vector<wire::Measured::Layer> layers) {
  reported_ = true;
  wire::Measured measured{.model = id_, .layers = std::move(layers)};
  node_.Post([measured = std::move(measured)](Node& node) { node.Report(measured); });
}

// ---- wishes, and what waiting was for

// Tells the others what this worker wants, and how long it and its device computed in the step that has ended.
void Model::BeginPace(Step step, const Wish& wish, double on_device) {
  if (pace_.HasBegun(step)) return;  // begins again, after a refusal
  MeterEnded();
  const TimePoint now = node_.now();
  double waited = 0;
  {
    MutexLock lock(mutex_);
    // Before the first step there is none to end. The clock leaves out the first that ends, which pays for memory.
    if (pace_.has_begun()) clock_->EndIteration();
    waited = std::exchange(step_waited_, 0.0);
    ++so_far_.begun;
  }
  const std::shared_ptr<Pace::Numbers> numbers = pace_.Begin(step, wish, now, waited, on_device);
  pace_.SumBegan(node_.Begin([id = id_, step, numbers](Node& node, Completion done) {
    const schedule::Scheduler* const scheduler = node.scheduler(id);
    // Read on the I/O executor, to which the scheduler belongs.
    if (scheduler != nullptr) numbers->busy = ToSeconds(scheduler->busy());
    node.StepSum(id, step, ViewOf(std::span(numbers->values)),
                 [numbers, done = std::move(done)](Status status) { done(std::move(status)); });
  }));
}

// Takes into account the steps of which every worker's numbers are in, in their order.
void Model::MeterEnded() {
  const std::vector<Pace::Ended> ended = pace_.TakeEnded();
  MutexLock lock(mutex_);
  for (const Pace::Ended& step : ended) {
    if (step.pace.begin >= metered_from_) overlap_.AddStep(step.pace, step.computed, step.on_device);
    so_far_.overlap.AddStep(step.pace, step.computed, step.on_device);
  }
}

Result<Wish> Model::Agreed() {
  if (!pace_.has_begun()) return Wish{};
  POSEIDON_RETURN_IF_ERROR(node_.CheckMayBlock());
  const std::shared_future<Status>& summed = pace_.summed();
  const FrontEnd::Blocked blocked(node_.front_end());
  while (summed.wait_for(kInterruptedEvery) != std::future_status::ready) node_.EndIfInterrupted();
  POSEIDON_RETURN_IF_ERROR(summed.get());
  return pace_.wishes();
}

ModelStatistics Model::Collect() const {
  ModelStatistics statistics;
  const messaging::Traffic traffic = node_.Totals().traffic;
  node_.Run([&](const Node& node) {
    const schedule::Scheduler* const scheduler = node.scheduler(id_);
    if (scheduler == nullptr) return;
    for (std::uint32_t i = 0; i < specs_.size(); ++i) {
      const schedule::LayerTiming& timing = scheduler->timing(LayerId(i));
      statistics.layers.push_back(
          {.gradients = traffic.layer(id_, LayerId(i), false),
           .factors = traffic.layer(id_, LayerId(i), true),
           .steps = timing.steps,
           .seconds = timing.seconds,
           .local_bytes = node.local_bytes(id_, LayerId(i))});
    }
    statistics.busy_seconds = ToSeconds(scheduler->busy());
  });
  MutexLock lock(mutex_);
  statistics.waited_seconds = ToSeconds(waited_);
  statistics.overlap = overlap_;
  return statistics;
}

StepsSoFar Model::CountSteps() const {
  MutexLock lock(mutex_);
  return so_far_;
}

void Model::ResetTimings() {
  node_.Run([this](Node& node) {
    if (schedule::Scheduler* const scheduler = node.scheduler(id_)) scheduler->ResetTimings();
  });
  MutexLock lock(mutex_);
  waited_ = Duration{0};
  overlap_ = {};
  metered_from_ = node_.now();
}

}  // namespace poseidon::session
