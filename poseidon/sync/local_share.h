// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_LOCAL_SHARE_H_
#define POSEIDON_SYNC_LOCAL_SHARE_H_

#include "poseidon/base/check.h"
#include "poseidon/local/share.h"
#include "poseidon/sync/syncer.h"

namespace poseidon::sync {

// A request as what its worker brings to its host.
inline local::Share ShareOf(const SyncRequest& request, LayerId layer, plan::Scheme scheme) {
  POSEIDON_CHECK(scheme == plan::Scheme::kKeyValue || request.absent || request.factors.has_value(),
                 "a factor layer is given its factors");
  return {.layer = layer,
          .step = request.step,
          .scheme = scheme,
          .gradient = request.gradient,
          .factors = request.factors.value_or(Factors{}),
          .absent = request.absent,
          .weight = request.weight};
}

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_LOCAL_SHARE_H_
