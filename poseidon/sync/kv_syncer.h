// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_KV_SYNCER_H_
#define POSEIDON_SYNC_KV_SYNCER_H_

#include "poseidon/kv/client.h"
#include "poseidon/sync/syncer.h"

namespace poseidon::sync {

// A layer through the sharded key-value store.
class KvSyncer final : public Syncer {
 public:
  KvSyncer(kv::Client& client, kv::Key key) : client_(client), key_(key) {}
  void Start(SyncRequest request) override;

 private:
  kv::Client& client_;
  const kv::Key key_;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_KV_SYNCER_H_
