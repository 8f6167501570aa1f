// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_STAGED_SYNCER_H_
#define POSEIDON_SYNC_STAGED_SYNCER_H_

#include <cstdint>
#include <memory>

#include "poseidon/device/device.h"
#include "poseidon/sync/syncer.h"

namespace poseidon::sync {

// A layer whose gradient may live on a device (SyncRequest::on_device; what lives on the host passes through): whatever goes out is copied to the host first, in stream
// order behind the kernel that makes it (SyncRequest::ready); then the layer's own syncer runs on the
// staging memory; then the mean is copied back, and the request is done.
//
// Memory: one staging buffer of the layer's size, one of its factors where they are sent, allocated
// at first use. Thread: the I/O executor, which is also the device's. Lifetime: the device outlives
// it.
class StagedSyncer final : public Syncer {
 public:
  // `factor_row_bytes`: of one row of u and of v; 0 and 0 for a layer without factors.
  struct FactorRow {
    std::uint64_t u_bytes = 0;
    std::uint64_t v_bytes = 0;
  };
  StagedSyncer(Executor& executor, std::unique_ptr<Syncer> inner, device::Device& device,
               FactorRow factor_row);

  void Start(SyncRequest request) override;

 private:
  struct Step;
  // Calls `next` with the outcome unless this syncer is gone.
  template <typename Next>
  Completion Then(std::shared_ptr<Step> step, Next next);
  Status MakeRoom(const SyncRequest& request);
  void CopyOut(const std::shared_ptr<Step>& step);
  void Synchronise(const std::shared_ptr<Step>& step);
  void CopyBack(const std::shared_ptr<Step>& step);

  Executor& executor_;
  const std::unique_ptr<Syncer> inner_;
  device::Device& device_;
  const FactorRow factor_row_;
  struct Staging {
    device::HostBuffer gradient;
    device::HostBuffer factors;  // u, then v
  };
  // Shared with the steps under way: a copy may outlive this syncer when the job ends.
  std::shared_ptr<Staging> staging_ = std::make_shared<Staging>();
  std::shared_ptr<StagedSyncer*> alive_;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_STAGED_SYNCER_H_
