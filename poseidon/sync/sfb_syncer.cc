// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/sfb_syncer.h"

#include <utility>

namespace poseidon::sync {

void SfbSyncer::Start(SyncRequest request) {
  POSEIDON_CHECK(request.absent || request.factors.has_value(),
                 "a factor layer is given its factors");
  broadcaster_.Broadcast({.model = model_,
                          .layer = layer_,
                          .step = request.step,
                          .factors = request.absent ? Factors{} : *request.factors,
                          .weight = request.absent ? 0 : request.weight,
                          .gradient = request.gradient.memory,
                          .gathered = request.gathered,
                          .priority = request.priority,
                          .plan_epoch = request.plan_epoch,
                          .done = std::move(request.done)});
}

}  // namespace poseidon::sync
