// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/session.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <numeric>
#include <utility>

namespace poseidon::session {
namespace {

constexpr std::chrono::milliseconds kInterruptedEvery{100};

}  // namespace

double Statistics::hidden_share() const {
  if (busy_seconds <= 0) return 1.0;
  return std::clamp(1.0 - waited_seconds / busy_seconds, 0.0, 1.0);
}

Session::Session(std::unique_ptr<Runtime> runtime, const SessionOptions& options)
    : runtime_(std::move(runtime)), options_(options) {}

template <typename F>
void Session::RunOnIo(F f) {
  std::promise<void> done;
  runtime_->io().Post([&] {
    f();
    done.set_value();
  });
  done.get_future().wait();
}

std::future<Status> Session::Begin(UniqueFunction<void(Completion)> start) {
  auto result = std::make_shared<std::promise<Status>>();
  std::future<Status> future = result->get_future();
  runtime_->io().Post([start = std::move(start), result] {
    start([result](Status status) { result->set_value(std::move(status)); });
  });
  return future;
}

bool Session::EndIfInterrupted() {
  if (!options_.interrupted || !options_.interrupted()) return false;
  const std::int32_t self = roster_.empty() ? kNoCulprit : rank_.value();
  Abort(Status(StatusCode::kAborted, "was interrupted", StatusScope::kJob, self));
  return true;
}

// An interrupted call waits for the job's end, after which nobody reads or writes what the call had lent.
template <typename T>
T Session::Get(std::future<T> future) {
  if (options_.interrupted) {
    while (future.wait_for(kInterruptedEvery) != std::future_status::ready) {
      if (EndIfInterrupted()) break;
    }
  }
  return future.get();
}

Status Session::Await(UniqueFunction<void(Completion)> start) { return Get(Begin(std::move(start))); }

Result<std::unique_ptr<Session>> Session::Open(
    std::unique_ptr<Runtime> runtime, const SessionOptions& options,
    UniqueFunction<void(const transport::Address&)> listening) {
  std::unique_ptr<Session> session(new Session(std::move(runtime), options));
  Status listened;
  transport::Address address;
  session->RunOnIo([&] {
    Session* const self = session.get();
    const NodeEnvironment environment{
        .io = self->runtime_->io(),
        .compute = self->runtime_->compute(),
        .completions = self->runtime_->completions(),
        .context = self->runtime_->context(),
        .log = options.log != nullptr ? *options.log : static_cast<LogSink&>(self->null_log_),
        .engine = options.engine,
        .trace = options.trace};
    self->node_ = std::make_unique<Node>(environment, options.node, [self](const Status& failure) {
      std::lock_guard lock(self->mutex_);
      self->failure_ = failure;
      self->landed_.notify_all();
    });
    listened = self->node_->Listen();
    if (listened.ok()) address = self->node_->address();
  });
  POSEIDON_RETURN_IF_ERROR(listened);
  if (listening) listening(address);
  POSEIDON_RETURN_IF_ERROR(session->Await([node = session->node_.get()](Completion done) {
    node->Start(std::move(done));
  }));
  session->RunOnIo([&] {
    session->rank_ = session->node_->rank();
    session->roster_ = session->node_->roster();
  });
  return session;
}

// The others must not wait for a product that is under way here; the node must, whose memory it reads.
Session::~Session() {
  if (node_) {
    RunOnIo([this] { node_->Vanish(); });
    Begin([this](Completion done) { node_->AwaitEnd(std::move(done)); }).wait();
    RunOnIo([this] { node_.reset(); });
  }
  runtime_.reset();
}

std::string Session::NameOf(std::int32_t member) const {
  if (member < 0 || static_cast<std::size_t>(member) >= roster_.size()) return "an unknown member";
  const wire::RosterEntry& entry = roster_[static_cast<std::size_t>(member)];
  const bool server = entry.role == wire::Role::kServer;
  return (server ? "server " + std::to_string(member - workers())
                 : "worker " + std::to_string(entry.rank.value())) +
         " on host " + entry.host;
}

Result<plan::Plan> Session::Commit(const std::vector<plan::LayerSpec>& layers) {
  auto promise = std::make_shared<std::promise<Result<plan::Plan>>>();
  std::future<Result<plan::Plan>> future = promise->get_future();
  {
    std::lock_guard lock(mutex_);
    pending_.resize(layers.size());
  }
  runtime_->io().Post([this, layers, promise] {
    node_->Commit(layers, [promise](Result<plan::Plan> plan) { promise->set_value(std::move(plan)); });
  });
  Result<plan::Plan> plan = Get(std::move(future));
  if (plan.ok()) provisional_plan_ = *plan;
  return plan;
}

Result<const plan::Plan*> Session::BeginStep(Step step) {
  if (const Status failed = failure(); !failed.ok()) return failed;
  if (!provisional_plan_) return FailedPrecondition("a step began before the layers were committed");
  if (!final_plan_ && step.value() >= options_.node.final_plan_step) {
    if (!reported_) {
      return FailedPrecondition("step " + std::to_string(step.value()) +
                                " follows the final plan, which waits for this worker's report");
    }
    auto promise = std::make_shared<std::promise<Result<plan::Plan>>>();
    std::future<Result<plan::Plan>> future = promise->get_future();
    runtime_->io().Post([this, promise] {
      node_->AwaitFinalPlan(
          [promise](Result<plan::Plan> plan) { promise->set_value(std::move(plan)); });
    });
    Result<plan::Plan> plan = Get(std::move(future));
    if (!plan.ok()) return plan.status();
    final_plan_ = *std::move(plan);
  }
  return &plan();
}

void Session::Report(const std::vector<wire::Measured::Layer>& layers) {
  reported_ = true;
  wire::Measured measured;
  measured.layers = layers;
  runtime_->io().Post([this, measured = std::move(measured)] { node_->Report(measured); });
}

Completion Session::Complete(LayerId layer, Completion landed) {
  return [this, layer, landed = std::move(landed)](Status status) {
    {
      std::lock_guard lock(mutex_);
      Pending& pending = pending_[layer.value()];
      pending.waiting = false;
      pending.status = status;
      landed_.notify_all();
    }
    if (landed) landed(std::move(status));
  };
}

void Session::PushRequest(LayerId layer, sync::SyncRequest request, Completion landed) {
  {
    std::lock_guard lock(mutex_);
    POSEIDON_CHECK(layer.value() < pending_.size(), "only committed layers can be pushed");
    pending_[layer.value()] = {true, request.step, {}};
  }
  request.done = Complete(layer, std::move(landed));
  runtime_->io().Post([this, layer, request = std::move(request)]() mutable {
    node_->Push(layer, std::move(request));
  });
}

void Session::Push(DensePush push) {
  sync::SyncRequest request;
  request.step = push.step;
  request.gradient = push.gradient;
  request.absent = push.absent;
  request.weight = push.weight;
  PushRequest(push.layer, std::move(request), std::move(push.landed));
}

void Session::PushFactors(FactorPush push) {
  sync::SyncRequest request;
  request.step = push.step;
  request.gradient = push.gradient;
  request.factors = push.factors;
  PushRequest(push.layer, std::move(request), std::move(push.landed));
}

LayerId Session::WaitAny(std::span<const LayerId> layers) {
  POSEIDON_CHECK(!layers.empty(), "somebody is waited for");
  std::unique_lock lock(mutex_);
  const auto first_landed = [&] {
    return std::find_if(layers.begin(), layers.end(),
                        [&](LayerId layer) { return !pending_.at(layer.value()).waiting; });
  };
  auto found = first_landed();
  if (found != layers.end()) return *found;
  const TimePoint begin = now();
  const auto one_landed = [&] { return (found = first_landed()) != layers.end(); };
  while (!landed_.wait_for(lock, kInterruptedEvery, one_landed)) {
    lock.unlock();
    EndIfInterrupted();
    lock.lock();
  }
  const TimePoint end = now();
  waited_ += end - begin;
  if (options_.trace != nullptr) {
    const LayerId wanted = layers.front();
    options_.trace->Record({TraceLane::kWait, static_cast<std::int32_t>(wanted.value()),
                            pending_[wanted.value()].step.value(), begin, end, 0, "wait"});
  }
  return *found;
}

Status Session::Wait(LayerId layer) {
  WaitAny({&layer, 1});
  std::lock_guard lock(mutex_);
  const Pending& pending = pending_.at(layer.value());
  // What a layer was told is an echo of the job's failure, where there is one.
  return pending.status.ok() || failure_.ok() ? pending.status : failure_;
}

bool Session::Landed(LayerId layer) const {
  std::lock_guard lock(mutex_);
  return !pending_.at(layer.value()).waiting;
}

// In pieces that every worker cuts alike: a sum has the same bits for any split.
Status Session::Collective(TensorView view, bool contribute) {
  const std::uint64_t at_once =
      std::max<std::uint64_t>(1, options_.collective_bytes / SizeOf(view.dtype));
  for (std::uint64_t first = 0; first == 0 || first < view.elements; first += at_once) {
    const TensorView piece{view.memory + first * SizeOf(view.dtype),
                           std::min(at_once, view.elements - first), view.dtype};
    POSEIDON_RETURN_IF_ERROR(Await([this, piece, contribute](Completion done) {
      node_->Collective(piece, contribute, std::move(done));
    }));
  }
  return OkStatus();
}

Status Session::Sum(TensorView view) { return Collective(view, true); }

std::future<Status> Session::StartSum(TensorView view) {
  return Begin([this, view](Completion done) { node_->Collective(view, true, std::move(done)); });
}

Status Session::Broadcast(TensorView view, Rank root) { return Collective(view, rank_ == root); }

Status Session::Barrier() {
  std::int64_t one = 1;
  return Collective(ViewOf(std::span(&one, 1)), true);
}

// Two sums: of the sizes, each rank filling its own number, then of the bytes, each rank filling its
// own stretch of 64-bit words. Sums of integers with zeros are exact.
Result<std::vector<ByteBuffer>> Session::Gather(ConstBytes bytes) {
  std::vector<std::int64_t> sizes(workers(), 0);
  sizes[rank_.value()] = static_cast<std::int64_t>(bytes.size());
  POSEIDON_RETURN_IF_ERROR(Collective(ViewOf(std::span(sizes)), true));
  std::vector<std::size_t> first(workers() + 1u, 0);
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    first[r + 1] = first[r] + (static_cast<std::size_t>(sizes[r]) + 7) / 8;
  }
  std::vector<std::int64_t> words(first.back(), 0);
  std::byte* const memory = reinterpret_cast<std::byte*>(words.data());
  std::copy(bytes.begin(), bytes.end(), memory + first[rank_.value()] * 8);
  POSEIDON_RETURN_IF_ERROR(Collective(ViewOf(std::span(words)), true));
  std::vector<ByteBuffer> gathered;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    const std::byte* const begin = memory + first[r] * 8;
    gathered.emplace_back(begin, begin + sizes[r]);
  }
  return gathered;
}

Status Session::Leave() {
  return Await([this](Completion done) { node_->Leave(std::move(done)); });
}

Status Session::AwaitEnd() {
  return Await([this](Completion done) { node_->AwaitEnd(std::move(done)); });
}

void Session::Abort(const Status& reason) {
  runtime_->io().Post([this, reason] { node_->Abort(reason); });
}

Status Session::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

Statistics Session::Collect() {
  Statistics statistics;
  RunOnIo([&] {
    const messaging::Traffic& traffic = node_->mesh().traffic();
    if (const schedule::Scheduler* scheduler = node_->scheduler(); scheduler != nullptr) {
      for (std::uint32_t i = 0; i < pending_.size(); ++i) {
        const schedule::LayerTiming& timing = scheduler->timing(LayerId(i));
        statistics.layers.push_back(
            {.key_value = traffic.layer(LayerId(i), plan::Scheme::kKeyValue),
             .factors = traffic.layer(LayerId(i), plan::Scheme::kFactorBroadcast),
             .steps = timing.steps,
             .seconds = timing.seconds,
             .local_bytes = node_->local_bytes(LayerId(i))});
      }
      statistics.busy_seconds = ToSeconds(scheduler->busy());
    }
    statistics.control = traffic.control();
    statistics.collectives = traffic.collectives();
    statistics.wire = node_->mesh().wire_counters();
    statistics.allocated_bytes = node_->allocated_bytes();
    statistics.link = node_->link();
  });
  std::lock_guard lock(mutex_);
  statistics.waited_seconds = ToSeconds(waited_);
  return statistics;
}

void Session::ResetTimings() {
  RunOnIo([this] {
    if (node_->scheduler() != nullptr) node_->scheduler()->ResetTimings();
  });
  std::lock_guard lock(mutex_);
  waited_ = Duration{0};
}

}  // namespace poseidon::session
