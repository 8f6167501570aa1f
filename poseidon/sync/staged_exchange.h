// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_STAGED_EXCHANGE_H_
#define POSEIDON_SYNC_STAGED_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/device/device.h"
#include "poseidon/sync/staging.h"
#include "poseidon/sync/wrapped_exchange.h"

namespace poseidon::sync {

// An exchange of layers whose gradients may be memory of a device (Contribution::on_device; a request of
// host memory passes through): what goes out is copied to the host first, in stream order after the
// kernel that makes it (Contribution::ready); the exchange itself works on the staging memory; then the
// mean is copied back, and the request is done.
//
// Where the other exchange takes parts, a large gradient is copied in parts, and the first leaves while the rest is
// copied. Where a copy fails after that, the request fails once the other copies have ended. The other exchange keeps what
// has left, and the staging memory, until it is abandoned.
//
// Memory: a Staging for each layer. Thread: the I/O executor, which is also the device's. Lifetime: the device outlives it.
class StagedExchange final : public WrappedExchange {
 public:
  // `staging`: of all schemes of the session. `trace` may be null.
  StagedExchange(Executor& executor, std::unique_ptr<Exchange> on_host, device::Device& device, std::shared_ptr<StagingByLayer> staging,
                 TraceRecorder* trace);

  void Declare(ModelId model, std::span<const plan::LayerSpec> layers) override;
  void Start(const wire::Key& key, SyncRequest request) override;
  // Of requests of host memory.
  bool takes_parts() const override { return inner().takes_parts(); }
  void Arrived(const wire::Key& key, std::uint64_t elements) override { inner().Arrived(key, elements); }
  // The staging buffers too, where this is the scheme that declared their layers first.
  std::uint64_t allocated_bytes() const override;

 private:
  struct Step;

  // The completion of an outward copy: calls `next` where all is well, unless this exchange is gone.
  template <typename Next>
  device::Copied Copied(const std::shared_ptr<Step>& step, std::uint64_t bytes, Next next);
  // Adds the copy to the trace, if there is one.
  static void Record(TraceRecorder* trace, TraceLane lane, const Step& step, std::uint64_t bytes, const device::CopyTimes& times);
  void CopyOut(const std::shared_ptr<Step>& step);
  void CopyOutFactors(const std::shared_ptr<Step>& step);
  void OnPart(const std::shared_ptr<Step>& step, std::size_t part);
  void OnCopied(const std::shared_ptr<Step>& step);
  void Synchronise(const std::shared_ptr<Step>& step, bool in_parts = false);
  void CopyBack(const std::shared_ptr<Step>& step);

  Executor& executor_;
  device::Device& device_;
  const std::shared_ptr<StagingByLayer> staging_;
  TraceRecorder* const trace_;
  std::vector<std::shared_ptr<const Staging>> counted_;
  Alive alive_;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_STAGED_EXCHANGE_H_
