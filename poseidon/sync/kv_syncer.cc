// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/kv_syncer.h"

#include <utility>

namespace poseidon::sync {

void KvSyncer::Start(SyncRequest request) {
  client_.PushPull({.key = key_,
                    .step = request.step,
                    .gradient = request.gradient,
                    .absent = request.absent,
                    .weight = request.weight,
                    .priority = request.priority,
                    .plan_epoch = request.plan_epoch,
                    .done = std::move(request.done)});
}

}  // namespace poseidon::sync
