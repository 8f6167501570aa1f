// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/staged_exchange.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "poseidon/base/check.h"

namespace poseidon::sync {

namespace {

// Whole numbers of every type. docs/decisions/sums.md says why so many.
constexpr std::uint64_t kPartBytes = std::uint64_t{4} << 20;

}  // namespace

// One request on its way through the copies.
struct StagedExchange::Step {
  wire::Key key;
  SyncRequest request;  // of staging memory
  std::shared_ptr<Staging> staging;
  TensorView on_device;            // where the mean shall land in the end
  std::optional<Factors> factors;  // on the device
  int copies = 0;                  // outward ones under way
  std::vector<bool> copied;        // by part of the gradient
  std::size_t handed_on = 0;       // parts, from the first on
  Status failure;

  void Fail(const Status& status) {
    if (failure.ok()) failure = status;
  }
  // Completes the request once no copy reads the device's memory any more. Called again where copies and the other
  // exchange fail one after the other.
  void EndFailed() {
    if (copies > 0) return;
    if (const Completion done = std::exchange(request.done, {})) done(failure);
  }
};

StagedExchange::StagedExchange(Executor& executor, std::unique_ptr<Exchange> on_host, device::Device& device,
                               std::shared_ptr<StagingByLayer> staging, TraceRecorder* trace)
    : WrappedExchange(std::move(on_host)), executor_(executor), device_(device), staging_(std::move(staging)), trace_(trace) {}

void StagedExchange::Declare(ModelId model, std::span<const plan::LayerSpec> layers) {
  POSEIDON_ASSERT_ON(executor_);
  WrappedExchange::Declare(model, layers);
  for (std::uint32_t i = 0; i < layers.size(); ++i) {
    std::shared_ptr<Staging>& staging = (*staging_)[wire::Key{model, LayerId(i)}];
    if (staging != nullptr) continue;
    staging = std::make_shared<Staging>(layers[i]);
    counted_.push_back(staging);
  }
}

template <typename Next>
device::Copied StagedExchange::Copied(const std::shared_ptr<Step>& step, std::uint64_t bytes, Next next) {
  // Completions never fire inside the call that takes them, so the count is whole before it goes down.
  ++step->copies;
  return alive_.Guard(
      [this, step, bytes, next](const Result<device::CopyTimes>& copied) {
        --step->copies;
        if (copied.ok()) Record(trace_, TraceLane::kToHost, *step, bytes, *copied);
        step->Fail(copied.status());
        step->failure.ok() ? next(*this) : step->EndFailed();
      },
      [step](const Result<device::CopyTimes>& copied) {
        --step->copies;
        step->Fail(copied.ok() ? Unavailable("the exchange is gone") : copied.status());
        step->EndFailed();
      });
}

void StagedExchange::Record(TraceRecorder* trace, TraceLane lane, const Step& step, std::uint64_t bytes, const device::CopyTimes& times) {
  if (trace == nullptr) return;
  trace->Record({lane, static_cast<std::int32_t>(step.key.layer.value()), step.request.step.value(), times.begin, times.end, bytes,
                 NameOf(lane), step.key.model.value()});
}

std::uint64_t StagedExchange::allocated_bytes() const {
  POSEIDON_ASSERT_ON(executor_);
  std::uint64_t bytes = WrappedExchange::allocated_bytes();
  for (const auto& staging : counted_) bytes += staging->allocated_bytes();
  return bytes;
}

void StagedExchange::Start(const wire::Key& key, SyncRequest request) {
  POSEIDON_ASSERT_ON(executor_);
  if (!request.on_device) return inner().Start(key, std::move(request));
  auto step = std::make_shared<Step>();
  step->key = key;
  step->staging = staging_->at(key);
  step->on_device = request.gradient;
  step->factors = request.factors;
  const Status room = step->staging->MakeRoom(key, request, inner(), device_);
  step->request = std::move(request);
  if (!room.ok()) {
    executor_.Post([step, room] { step->request.done(room); });
    return;
  }
  step->request.gradient.memory = step->staging->gradient().data();
  // u and v still name device memory then, but nobody reads them where there are no rows.
  const bool no_rows = step->factors && step->factors->rows == 0;
  if (step->request.absent || no_rows) return Synchronise(step);
  CopyOut(step);
}

void StagedExchange::CopyOut(const std::shared_ptr<Step>& step) {
  if (step->factors) return CopyOutFactors(step);
  const std::uint64_t bytes = step->on_device.bytes();
  const std::uint64_t part_bytes = inner().takes_parts() ? kPartBytes : bytes;
  step->copied.resize((bytes + part_bytes - 1) / part_bytes);
  // All at once: the device's stream has the next copy when one ends.
  for (std::size_t i = 0; i < step->copied.size(); ++i) {
    const std::uint64_t begin = i * part_bytes;
    const std::uint64_t size = std::min(part_bytes, bytes - begin);
    device_.CopyToHost({step->on_device.memory + begin, size}, step->staging->gradient().subspan(begin, size),
                       step->request.ready, Copied(step, size, [step, i](StagedExchange& self) { self.OnPart(step, i); }));
  }
}

void StagedExchange::CopyOutFactors(const std::shared_ptr<Step>& step) {
  const MutableBytes u = step->staging->u();
  const MutableBytes v = step->staging->v();
  step->request.factors->u = u.data();
  step->request.factors->v = v.data();
  const auto copied = [step](StagedExchange& self) { self.OnCopied(step); };
  // DeviceSpan serves both directions; CopyToHost leaves its source unchanged (device/device.h).
  const auto copy = [&](const std::byte* from, MutableBytes into) {
    device_.CopyToHost({const_cast<std::byte*>(from), into.size()}, into, step->request.ready,
                       Copied(step, into.size(), copied));
  };
  copy(step->factors->u, u);
  copy(step->factors->v, v);
}

void StagedExchange::OnPart(const std::shared_ptr<Step>& step, std::size_t part) {
  if (step->copied.size() == 1) return Synchronise(step);
  step->copied[part] = true;
  const std::size_t before = step->handed_on;
  // Copies run in order, but a device may say from several threads that they have ended.
  while (step->handed_on < step->copied.size() && step->copied[step->handed_on]) ++step->handed_on;
  if (step->handed_on == before) return;
  if (before == 0) Synchronise(step, true);
  const std::uint64_t elements = step->handed_on * (kPartBytes / SizeOf(step->on_device.dtype));
  inner().Arrived(step->key, std::min(elements, step->on_device.elements));
}

void StagedExchange::OnCopied(const std::shared_ptr<Step>& step) {
  if (step->copies == 0) Synchronise(step);
}

void StagedExchange::Synchronise(const std::shared_ptr<Step>& step, bool in_parts) {
  const SyncRequest& request = step->request;
  Completion done = alive_.Guard(
      [this, step](const Status& status) {
        step->Fail(status);
        CopyBack(step);
      },
      [step](const Status& status) {
        step->Fail(status.ok() ? Unavailable("the exchange is gone") : status);
        step->EndFailed();
      });
  SyncRequest on_host{request, request.priority, request.gathered, std::move(done)};
  // From here on all memory is the host's, and what has come holds its numbers.
  on_host.on_device = false;
  on_host.ready = nullptr;
  on_host.in_parts = in_parts;
  inner().Start(step->key, std::move(on_host));
}

void StagedExchange::CopyBack(const std::shared_ptr<Step>& step) {
  if (!step->failure.ok()) return step->EndFailed();
  // What is gathered stays in memory of the host, from where the program takes it.
  if (step->request.gathered != nullptr) return step->request.done(OkStatus());
  // Not guarded, because the end needs nothing of this exchange: a trace outlives the device. The step keeps the staging memory until
  // then.
  const ConstBytes mean = step->staging->mean().first(step->on_device.bytes());
  device_.CopyFromHost(mean, device::SpanOf(step->on_device),
                       [step, trace = trace_, bytes = mean.size()](const Result<device::CopyTimes>& copied) {
                         if (copied.ok()) Record(trace, TraceLane::kToDevice, *step, bytes, *copied);
                         step->request.done(copied.status());
                       });
}

}  // namespace poseidon::sync
