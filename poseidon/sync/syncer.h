// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_SYNCER_H_
#define POSEIDON_SYNC_SYNCER_H_

#include <cstdint>
#include <optional>

#include "poseidon/base/executor.h"
#include "poseidon/base/strong_id.h"
#include "poseidon/device/device.h"
#include "poseidon/messaging/channel.h"
#include "poseidon/sfb/rebuild.h"
#include "poseidon/tensor/view.h"

namespace poseidon::sync {

// One step of one layer, on its way from a worker's gradient to the mean over all workers.
struct SyncRequest {
  Step step;
  PlanEpoch plan_epoch;
  messaging::Priority priority;
  // The flat gradient: what is sent in the key-value scheme, and where the mean lands in every
  // scheme. Lent until `done`.
  TensorView gradient;
  // In the factor scheme what is sent instead; lent until `done`, unchanged. Rows may be 0.
  std::optional<Factors> factors;
  // Of a table, which has no flat gradient: where the mean lands.
  sfb::GatheredRows* gathered = nullptr;
  bool absent = false;        // contribute nothing, receive the mean of the others
  std::uint32_t weight = 0;   // of this contribution in the mean; 0: unweighted
  // Gradient and factors are memory of the session's device.
  bool on_device = false;
  // On a device: what must have happened before gradient or factors hold their numbers.
  device::Event ready = nullptr;
  Completion done;            // on the I/O executor
};

// How one layer is synchronised, whichever the scheme: one object per layer and scheme.
// Thread: the I/O executor.
class Syncer {
 public:
  virtual ~Syncer() = default;
  // One step at a time.
  virtual void Start(SyncRequest request) = 0;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_SYNCER_H_
