// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sfb/broadcaster.h"

#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::sfb {

Broadcaster::Broadcaster(const sync::ExchangeEnvironment& env, const sync::Topology& topology,
                         factors::ProductEngine* engine)
    : executor_(env.io),
      compute_(env.compute),
      mesh_(env.mesh),
      topology_(topology),
      engine_(engine),
      trace_(env.trace),
      inbox_(topology, [this](const wire::Key& key) { RebuildIfComplete(key); }),
      compression_(env.strategy.zero_compression) {}

void Broadcaster::Declare(const wire::Key& key, const plan::LayerSpec& spec) {
  POSEIDON_ASSERT_ON(executor_);
  POSEIDON_CHECK(engine_ != nullptr || spec.is_table(), "products need an engine");
  inbox_.Add(key, *spec.factors, spec.dtype);
  layers_.emplace(key, LayerState{.shape = *spec.factors, .dtype = spec.dtype, .outstanding = std::nullopt});
}

void Broadcaster::Broadcast(const wire::Key& key, sync::SyncRequest request) {
  POSEIDON_ASSERT_ON(executor_);
  if (!abandoned_.ok()) {
    executor_.Post([done = std::move(request.done), reason = abandoned_] { done(reason); });
    return;
  }
  const auto found = layers_.find(key);
  POSEIDON_CHECK(found != layers_.end(), "a layer that broadcasts factors has been declared so");
  POSEIDON_CHECK(request.absent || request.factors.has_value(), "a factor layer is given its factors");
  LayerState& state = found->second;
  POSEIDON_CHECK(!state.outstanding, "one step per layer at a time");
  if (request.absent) {
    request.factors = Factors{};
    request.weight = 0;
  }
  state.outstanding = Outstanding{};
  state.outstanding->step = request.step;
  state.outstanding->gradient = request.gradient.memory;
  state.outstanding->gathered = request.gathered;
  state.outstanding->done = std::move(request.done);

  const Factors& own = *request.factors;
  // Before anything is sent: where this fails, no frame reads the factors, and the request can end at once.
  const Status put = inbox_.store(key).Put(*topology_.self_rank, request.step, own, request.weight);
  if (!put.ok()) {
    state.outstanding->failure = put;
    state.outstanding->rebuilt = true;
    return FinishIfDone(state);
  }
  // Once for all peers. No frame reads the bytes of the step before: that was done only when all had left.
  const auto peers = static_cast<std::uint32_t>(topology_.ranks() - 1);
  state.u.Pack({own.u, own.rows * state.shape.u_bytes_per_row(state.dtype)}, peers, compression_);
  state.v.Pack({own.v, own.rows * state.shape.v_bytes_per_row(state.dtype)}, peers, compression_);
  for (const MemberId peer : topology_.worker_of_rank) {
    if (peer == topology_.self) continue;
    state.outstanding->unsent += sync::SendFactors(
        mesh_, peer, *topology_.self_rank, key, request,
        {.scheme = plan::Scheme::kFactorBroadcast, .dtype = state.dtype, .u = state.u, .v = state.v}, [&] {
          return alive_.Guard([this, key, step = request.step](const Status& status) { OnLeft(key, step, status); });
        });
  }
  // Last: the rows of all others may be in already, and a failure there would end the request before all frames are
  // counted.
  RebuildIfComplete(key);
}

void Broadcaster::RebuildIfComplete(const wire::Key& key) {
  LayerState& state = layers_.find(key)->second;
  // Rows of the next step may come while this one's product runs, or before this worker has its own.
  if (!state.outstanding || state.outstanding->rebuilding) return;
  const Step step = state.outstanding->step;
  if (!inbox_.store(key).Complete(step)) return;
  state.outstanding->rebuilding = true;
  Result<sync::FactorInbox::Mean> mean = inbox_.MeanOf(key, step);
  if (!mean.ok()) return OnRebuilt(key, step, mean.status());
  auto rebuilt = alive_.Guard([this, key, step](const Status& status) { OnRebuilt(key, step, status); });
  // The task runs on another thread and uses nothing of this object; `rebuilt` is called on the executor again
  // (base/alive.h).
  compute_.Post([rebuilt = std::move(rebuilt), key, step, mean = *std::move(mean), shape = state.shape,
                 dtype = state.dtype, gradient = state.outstanding->gradient,
                 gathered = state.outstanding->gathered, &executor = executor_, engine = engine_, &compute = compute_,
                 trace = trace_]() mutable {
    const TimePoint begin = compute.now();
    const Status status = gathered != nullptr
                              ? gathered->Take(shape, dtype, mean.rows, mean.alpha)
                              : factors::RebuildGradient(shape, dtype, mean.rows, mean.alpha, *engine, gradient);
    if (trace != nullptr) {
      trace->Record({TraceLane::kRebuild, static_cast<std::int32_t>(key.layer.value()),
                     step.value(), begin, compute.now(), 0, "rebuild", key.model.value()});
    }
    executor.Post([rebuilt = std::move(rebuilt), status]() mutable { rebuilt(status); });
  });
}

void Broadcaster::OnRebuilt(const wire::Key& key, Step step, const Status& status) {
  LayerState& state = layers_.find(key)->second;
  if (!state.outstanding || state.outstanding->step != step) return;
  // Before the request is done, since the next step needs a set, and the store has two.
  inbox_.store(key).Release(step);
  if (state.outstanding->gathered != nullptr) state.gathered_bytes = state.outstanding->gathered->allocated_bytes();
  state.outstanding->rebuilt = true;
  if (state.outstanding->failure.ok()) state.outstanding->failure = status;
  FinishIfDone(state);
}

void Broadcaster::OnLeft(const wire::Key& key, Step step, const Status& status) {
  LayerState& state = layers_.find(key)->second;
  // Abandon has settled what had not left.
  if (!abandoned_.ok() || !state.outstanding || state.outstanding->step != step) return;
  --state.outstanding->unsent;
  if (state.outstanding->failure.ok()) state.outstanding->failure = status;
  FinishIfDone(state);
}

void Broadcaster::FinishIfDone(LayerState& state) {
  Outstanding& outstanding = *state.outstanding;
  if (!outstanding.rebuilt || outstanding.unsent > 0) return;
  executor_.Post([done = std::move(outstanding.done), failure = outstanding.failure] {
    done(failure);
  });
  state.outstanding.reset();
}

// A product under way still writes the gradient: its request completes when it has ended.
void Broadcaster::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  abandoned_ = reason;
  inbox_.Close(reason);
  for (auto& [key, state] : layers_) {
    if (!state.outstanding) continue;
    Outstanding& outstanding = *state.outstanding;
    if (outstanding.failure.ok()) outstanding.failure = reason;
    outstanding.unsent = 0;
    if (!outstanding.rebuilding) outstanding.rebuilt = true;
    FinishIfDone(state);
  }
}

std::uint64_t Broadcaster::allocated_bytes() const {
  POSEIDON_ASSERT_ON(executor_);
  std::uint64_t sum = inbox_.allocated_bytes();
  for (const auto& [key, state] : layers_) {
    sum += state.gathered_bytes + state.u.allocated_bytes() + state.v.allocated_bytes();
  }
  return sum;
}

}  // namespace poseidon::sfb
