// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/staged_exchange.h"

#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::sync {

// One request on its way through the copies.
struct StagedExchange::Step {
  wire::Key key;
  SyncRequest request;  // of staging memory
  std::shared_ptr<Staging> staging;
  TensorView on_device;            // where the mean shall land in the end
  std::optional<Factors> factors;  // on the device
  int copies = 0;                  // outward ones under way
  Status failure;

  void Fail(const Status& status) {
    if (failure.ok()) failure = status;
  }
};

StagedExchange::StagedExchange(Executor& executor, std::unique_ptr<Exchange> on_host, device::Device& device)
    : WrappedExchange(std::move(on_host)), executor_(executor), device_(device) {}

void StagedExchange::Declare(ModelId model, std::span<const plan::LayerSpec> layers) {
  POSEIDON_ASSERT_ON(executor_);
  WrappedExchange::Declare(model, layers);
  for (std::uint32_t i = 0; i < layers.size(); ++i) {
    auto staging = std::make_shared<Staging>();
    if (layers[i].factors) {
      staging->u_row_bytes = layers[i].factors->u_bytes_per_row(layers[i].dtype);
      staging->v_row_bytes = layers[i].factors->v_bytes_per_row(layers[i].dtype);
    }
    staging_.insert_or_assign(wire::Key{model, LayerId(i)}, std::move(staging));
  }
}

template <typename Next>
Completion StagedExchange::Then(std::shared_ptr<Step> step, Next next) {
  return alive_.Guard(
      [this, step, next](const Status& status) {
        step->Fail(status);
        (this->*next)(step);
      },
      [step](const Status& status) {
        step->Fail(status);
        // Two copies of factors may both come here; the request is done once.
        const Completion done = std::exchange(step->request.done, {});
        if (done) done(step->failure.ok() ? Unavailable("the exchange is gone") : step->failure);
      });
}

Status StagedExchange::MakeRoom(const SyncRequest& request, Staging& staging) {
  if (staging.gradient.bytes().size() < request.gradient.bytes()) {
    POSEIDON_ASSIGN_OR_RETURN(staging.gradient, device_.AllocateHost(request.gradient.bytes()));
  }
  if (!request.factors) return OkStatus();
  const std::uint64_t bytes = request.factors->rows * (staging.u_row_bytes + staging.v_row_bytes);
  if (staging.factors.bytes().size() < bytes) {
    POSEIDON_ASSIGN_OR_RETURN(staging.factors, device_.AllocateHost(bytes));
  }
  return OkStatus();
}

std::uint64_t StagedExchange::allocated_bytes() const {
  POSEIDON_ASSERT_ON(executor_);
  std::uint64_t bytes = WrappedExchange::allocated_bytes();
  for (const auto& [key, staging] : staging_) {
    bytes += staging->gradient.bytes().size() + staging->factors.bytes().size();
  }
  return bytes;
}

void StagedExchange::Start(const wire::Key& key, SyncRequest request) {
  POSEIDON_ASSERT_ON(executor_);
  if (!request.on_device) return inner().Start(key, std::move(request));
  auto step = std::make_shared<Step>();
  step->key = key;
  step->staging = staging_.at(key);
  step->on_device = request.gradient;
  step->factors = request.factors;
  const Status room = MakeRoom(request, *step->staging);
  step->request = std::move(request);
  if (!room.ok()) {
    executor_.Post([step, room] { step->request.done(room); });
    return;
  }
  step->request.gradient.memory = step->staging->gradient.bytes().data();
  // u and v still name device memory then, but nobody reads them where there are no rows.
  const bool no_rows = step->factors && step->factors->rows == 0;
  if (step->request.absent || no_rows) return Synchronise(step);
  CopyOut(step);
}

void StagedExchange::CopyOut(const std::shared_ptr<Step>& step) {
  Staging& staging = *step->staging;
  const device::Event ready = step->request.ready;
  // Completions never fire inside the call, so the count is whole before it goes down.
  if (!step->factors) {
    step->copies = 1;
    device_.CopyToHost(device::SpanOf(step->on_device), staging.gradient.bytes().first(step->on_device.bytes()), ready,
                       Then(step, &StagedExchange::OnCopiedOut));
    return;
  }
  const Factors& factors = *step->factors;
  const std::uint64_t u_bytes = factors.rows * staging.u_row_bytes;
  const std::uint64_t v_bytes = factors.rows * staging.v_row_bytes;
  // DeviceSpan serves both directions; CopyToHost leaves its source unchanged (device/device.h).
  const device::DeviceSpan u{const_cast<std::byte*>(factors.u), u_bytes};
  const device::DeviceSpan v{const_cast<std::byte*>(factors.v), v_bytes};
  step->request.factors->u = staging.factors.bytes().data();
  step->request.factors->v = staging.factors.bytes().data() + u_bytes;
  step->copies = 2;
  device_.CopyToHost(u, staging.factors.bytes().first(u_bytes), ready, Then(step, &StagedExchange::OnCopiedOut));
  device_.CopyToHost(v, staging.factors.bytes().subspan(u_bytes, v_bytes), ready,
                     Then(step, &StagedExchange::OnCopiedOut));
}

void StagedExchange::OnCopiedOut(const std::shared_ptr<Step>& step) {
  if (--step->copies > 0) return;
  if (!step->failure.ok()) return step->request.done(step->failure);
  Synchronise(step);
}

void StagedExchange::Synchronise(const std::shared_ptr<Step>& step) {
  // Without `on_device` and `ready`: from here on all memory is the host's and holds its numbers.
  SyncRequest on_host = Onward(step->request);
  on_host.gathered = step->request.gathered;
  on_host.done = Then(step, &StagedExchange::CopyBack);
  inner().Start(step->key, std::move(on_host));
}

void StagedExchange::CopyBack(const std::shared_ptr<Step>& step) {
  // What is gathered stays in memory of the host, from where the program takes it.
  if (!step->failure.ok() || step->request.gathered != nullptr) return step->request.done(step->failure);
  // Not guarded, because the end needs nothing of this exchange. The step keeps the staging memory until then.
  device_.CopyFromHost(step->request.gradient.span(), device::SpanOf(step->on_device),
                       [step](Status status) { step->request.done(status); });
}

}  // namespace poseidon::sync
