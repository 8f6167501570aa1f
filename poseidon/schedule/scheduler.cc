// SPDX-License-Identifier: Apache-2.0
#include "poseidon/schedule/scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::schedule {

std::string_view NameOf(LayerState state) {
  switch (state) {
    case LayerState::kIdle:
      return "idle";
    case LayerState::kInFlight:
      return "in flight";
    case LayerState::kFailed:
      return "failed";
  }
  return "?";
}

Scheduler::Scheduler(Executor& io, Executor& completions, const sync::Exchanges& exchanges, ModelId model,
                     std::size_t layers, const sync::Strategy& strategy)
    : io_(io),
      completions_(completions),
      exchanges_(exchanges),
      model_(model),
      order_(strategy.order),
      rows_(layers),
      plans_(layers),
      endings_(new Endings{this, completions, std::vector<Completion>(layers)}) {}

Scheduler::~Scheduler() { endings_->scheduler = nullptr; }

void Scheduler::UsePlan(const plan::Plan& plan) {
  POSEIDON_ASSERT_ON(io_);
  plans_.Use(plan);
}

void Scheduler::WatchLast(const std::vector<bool>& last, std::function<void(bool)> tell) {
  POSEIDON_ASSERT_ON(io_);
  // The previous `tell` gets its end here, because it is not called later.
  TellLast(false);
  tell_last_ = std::move(tell);
  for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i].ends_backward = last.at(i);
}

// Whether a layer that ends the backward pass of `step` is on its way, or still to be pushed.
bool Scheduler::LastUnlanded(Step step) const {
  return std::ranges::any_of(rows_, [step](const Row& row) {
    // An idle layer of an earlier step has yet to be pushed. A failed one never lands and is not waited for.
    const bool landed = row.state == LayerState::kIdle && row.step == step;
    return row.ends_backward && row.state != LayerState::kFailed && !landed;
  });
}

void Scheduler::TellLast(bool ends) {
  if (ends != backward_ends_) tell_last_(ends);
  backward_ends_ = ends;
}

Status Scheduler::Check(const Row& row, LayerId layer, const sync::SyncRequest& request,
                        plan::Scheme scheme) const {
  const auto name = [layer] { return "layer " + std::to_string(layer.value()); };
  if (row.state != LayerState::kIdle) {
    return FailedPrecondition(name() + " was pushed while it is " + std::string(NameOf(row.state)));
  }
  if (row.step && request.step <= *row.step) {
    return FailedPrecondition(name() + " was pushed for step " +
                              std::to_string(request.step.value()) + " after step " +
                              std::to_string(row.step->value()));
  }
  // An absent worker brings neither a gradient nor factors, so either form of its request fits.
  const bool factors = plan::TakesFactors(scheme);
  if (!request.absent && factors != request.factors.has_value()) {
    return FailedPrecondition(name() + " was pushed " + (factors ? "dense" : "as factors") +
                              ", but the plan's scheme for it is " +
                              std::string(plan::NameOf(scheme)));
  }
  return OkStatus();
}

void Scheduler::Push(LayerId layer, sync::SyncRequest request) {
  POSEIDON_ASSERT_ON(io_);
  Row& row = rows_.at(layer.value());
  // The plan of this request's step, not the newest: steps of two plans may be under way at once (plan/history.h).
  const auto [scheme, position] = plans_.At(request.step).by_layer[layer.value()];
  if (const Status status = Check(row, layer, request, scheme); !status.ok()) {
    completions_.Post([done = std::move(request.done), status] { done(status); });
    return;
  }
  Begin(row, request.step);
  row.only_wakes = request.only_wakes;
  request.priority = messaging::PriorityOf(order_, messaging::Leg::kContribution, request.step, position);
  request.done = Ending(layer, std::move(request.done));
  HandOver(layer, exchanges_.Of(scheme), std::move(request));
}

// The layer is in flight from now on.
void Scheduler::Begin(Row& row, Step step) {
  row.state = LayerState::kInFlight;
  row.step = step;
  row.pushed_at = io_.now();
  if (in_flight_++ == 0) busy_since_ = row.pushed_at;
  TellLast(row.ends_backward);  // by another layer's push another backward pass has begun
}

// The completion fires once, also where the scheduler is gone by then.
Completion Scheduler::Ending(LayerId layer, Completion done) {
  endings_->done[layer.value()] = std::move(done);
  return [endings = endings_, layer](const Status& status) { endings->End(layer, status); };
}

void Scheduler::Endings::End(LayerId layer, const Status& status) {
  Completion ended = std::move(done[layer.value()]);
  if (scheduler != nullptr) return scheduler->OnDone(layer, std::move(ended), status);
  completions.Post([ended = std::move(ended), status = status] { ended(status); });
}

// A request in parts waits here until it is whole where the exchange takes none.
void Scheduler::HandOver(LayerId layer, sync::Exchange& exchange, sync::SyncRequest request) {
  Row& row = rows_[layer.value()];
  if (request.in_parts) row.in_parts = &exchange;
  if (request.in_parts && !exchange.takes_parts()) {
    row.incomplete = std::move(request);
  } else {
    exchange.Start({model_, layer}, std::move(request));
  }
}

void Scheduler::Arrived(LayerId layer, std::uint64_t elements) {
  POSEIDON_ASSERT_ON(io_);
  Row& row = rows_.at(layer.value());
  if (row.in_parts == nullptr) return;
  if (!row.incomplete) return row.in_parts->Arrived({model_, layer}, elements);
  if (elements < row.incomplete->gradient.elements) return;
  sync::SyncRequest whole = *std::exchange(row.incomplete, std::nullopt);
  whole.in_parts = false;
  std::exchange(row.in_parts, nullptr)->Start({model_, layer}, std::move(whole));
}

void Scheduler::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(io_);
  for (Row& row : rows_) {
    if (!row.incomplete) continue;
    // Posted, as an exchange completes.
    io_.Post([done = std::move(row.incomplete->done), reason] { done(reason); });
    row.incomplete.reset();
  }
}

void Scheduler::OnDone(LayerId layer, Completion done, const Status& status) {
  Row& row = rows_[layer.value()];
  // A failed layer takes no further push: the job's first failure is final.
  row.state = status.ok() ? LayerState::kIdle : LayerState::kFailed;
  row.in_parts = nullptr;
  const TimePoint now = io_.now();
  row.timing.last_seconds = ToSeconds(now - row.pushed_at);
  row.timing.seconds += row.timing.last_seconds;
  ++row.timing.steps;
  // Layers overlap on the wire: busy is the union of their times and not the sum.
  if (--in_flight_ == 0) busy_ = busy_ + (now - busy_since_);
  if (backward_ends_) TellLast(LastUnlanded(*row.step));
  // To wake a thread through another one would cost as much as all of the above.
  if (row.only_wakes && status.ok()) return done(status);
  completions_.Post([done = std::move(done), status = status] { done(status); });
}

Duration Scheduler::busy() const {
  POSEIDON_ASSERT_ON(io_);
  return in_flight_ == 0 ? busy_ : busy_ + (io_.now() - busy_since_);
}

void Scheduler::ResetTimings() {
  POSEIDON_ASSERT_ON(io_);
  for (Row& row : rows_) row.timing = {};
  busy_ = Duration{0};
  // A layer on its way counts from now on only.
  if (in_flight_ > 0) busy_since_ = io_.now();
}

}  // namespace poseidon::schedule
