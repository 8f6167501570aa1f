// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_FOLLOWER_SYNCER_H_
#define POSEIDON_SYNC_FOLLOWER_SYNCER_H_

#include "poseidon/local/follower.h"
#include "poseidon/sync/syncer.h"

namespace poseidon::sync {

// A layer of a worker for which its host's leader speaks.
class FollowerSyncer final : public Syncer {
 public:
  FollowerSyncer(local::Follower& follower, LayerId layer, plan::Scheme scheme)
      : follower_(follower), layer_(layer), scheme_(scheme) {}
  void Start(SyncRequest request) override;

 private:
  local::Follower& follower_;
  const LayerId layer_;
  const plan::Scheme scheme_;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_FOLLOWER_SYNCER_H_
