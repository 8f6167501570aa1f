// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/staged_syncer.h"

#include <utility>

namespace poseidon::sync {

// One request on its way through the copies.
struct StagedSyncer::Step {
  SyncRequest request;
  std::shared_ptr<Staging> staging;
  TensorView on_device;  // where the mean shall land in the end
  int copies = 0;  // outward ones under way
  Status failure;

  void Fail(const Status& status) {
    if (failure.ok()) failure = status;
  }
};

StagedSyncer::StagedSyncer(Executor& executor, std::unique_ptr<Syncer> inner,
                           device::Device& device, FactorRow factor_row)
    : executor_(executor),
      inner_(std::move(inner)),
      device_(device),
      factor_row_(factor_row),
      alive_(std::make_shared<StagedSyncer*>(this)) {}

template <typename Next>
Completion StagedSyncer::Then(std::shared_ptr<Step> step, Next next) {
  return [weak = std::weak_ptr<StagedSyncer*>(alive_), step = std::move(step),
          next](Status status) {
    step->Fail(status);
    if (const auto self = weak.lock()) {
      ((*self)->*next)(step);
    } else if (step->request.done) {
      step->request.done(step->failure.ok() ? Unavailable("the layer is gone") : step->failure);
    }
  };
}

Status StagedSyncer::MakeRoom(const SyncRequest& request) {
  if (staging_->gradient.bytes().size() < request.gradient.bytes()) {
    POSEIDON_ASSIGN_OR_RETURN(staging_->gradient, device_.AllocateHost(request.gradient.bytes()));
  }
  if (!request.factors) return OkStatus();
  const std::uint64_t bytes =
      request.factors->rows * (factor_row_.u_bytes + factor_row_.v_bytes);
  if (staging_->factors.bytes().size() < bytes) {
    POSEIDON_ASSIGN_OR_RETURN(staging_->factors, device_.AllocateHost(bytes));
  }
  return OkStatus();
}

void StagedSyncer::Start(SyncRequest request) {
  if (!request.on_device) return inner_->Start(std::move(request));
  auto step = std::make_shared<Step>();
  step->on_device = request.gradient;
  const Status room = MakeRoom(request);
  step->request = std::move(request);
  step->staging = staging_;
  step->request.gradient.memory = staging_->gradient.bytes().data();
  if (!room.ok()) {
    executor_.Post([step, room] { step->request.done(room); });
    return;
  }
  const bool no_rows = step->request.factors && step->request.factors->rows == 0;
  if (step->request.absent || no_rows) return Synchronise(step);
  // Completions never fire inside the call, so the count is whole before it goes down.
  if (step->request.factors) {
    Factors& factors = *step->request.factors;
    const std::uint64_t u_bytes = factors.rows * factor_row_.u_bytes;
    const std::uint64_t v_bytes = factors.rows * factor_row_.v_bytes;
    const device::DeviceSpan u{const_cast<std::byte*>(factors.u), u_bytes};
    const device::DeviceSpan v{const_cast<std::byte*>(factors.v), v_bytes};
    factors.u = staging_->factors.bytes().data();
    factors.v = staging_->factors.bytes().data() + u_bytes;
    step->copies = 2;
    device_.CopyToHost(u, staging_->factors.bytes().first(u_bytes), step->request.ready,
                       Then(step, &StagedSyncer::CopyOut));
    device_.CopyToHost(v, staging_->factors.bytes().subspan(u_bytes, v_bytes), step->request.ready,
                       Then(step, &StagedSyncer::CopyOut));
  } else {
    step->copies = 1;
    device_.CopyToHost(device::SpanOf(step->on_device),
                       staging_->gradient.bytes().first(step->on_device.bytes()), step->request.ready,
                       Then(step, &StagedSyncer::CopyOut));
  }
}

void StagedSyncer::CopyOut(const std::shared_ptr<Step>& step) {
  if (--step->copies > 0) return;
  if (!step->failure.ok()) return step->request.done(step->failure);
  Synchronise(step);
}

void StagedSyncer::Synchronise(const std::shared_ptr<Step>& step) {
  SyncRequest inner = {.step = step->request.step,
                       .plan_epoch = step->request.plan_epoch,
                       .priority = step->request.priority,
                       .gradient = step->request.gradient,
                       .factors = step->request.factors,
                       .absent = step->request.absent,
                       .weight = step->request.weight,
                       .ready = nullptr,
                       .done = Then(step, &StagedSyncer::CopyBack)};
  inner_->Start(std::move(inner));
}

void StagedSyncer::CopyBack(const std::shared_ptr<Step>& step) {
  if (!step->failure.ok()) return step->request.done(step->failure);
  device_.CopyFromHost(step->request.gradient.span(), device::SpanOf(step->on_device),
                       [step](Status status) { step->request.done(status); });
}

}  // namespace poseidon::sync
