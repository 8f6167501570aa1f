// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_SFB_SYNCER_H_
#define POSEIDON_SYNC_SFB_SYNCER_H_

#include "poseidon/sfb/broadcaster.h"
#include "poseidon/sync/syncer.h"

namespace poseidon::sync {

// A fully connected layer through its factors, or a table through its rows.
class SfbSyncer final : public Syncer {
 public:
  SfbSyncer(sfb::Broadcaster& broadcaster, ModelId model, LayerId layer)
      : broadcaster_(broadcaster), model_(model), layer_(layer) {}
  // An absent contribution is one of 0 rows.
  void Start(SyncRequest request) override;

 private:
  sfb::Broadcaster& broadcaster_;
  const ModelId model_;
  const LayerId layer_;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_SFB_SYNCER_H_
