// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/follower_syncer.h"

#include <utility>

#include "poseidon/sync/local_share.h"

namespace poseidon::sync {

void FollowerSyncer::Start(SyncRequest request) {
  follower_.Contribute(ShareOf(request, layer_, scheme_), request.plan_epoch,
                       std::move(request.done));
}

}  // namespace poseidon::sync
