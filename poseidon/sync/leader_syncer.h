// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_LEADER_SYNCER_H_
#define POSEIDON_SYNC_LEADER_SYNCER_H_

#include <memory>

#include "poseidon/local/leader.h"
#include "poseidon/sync/syncer.h"

namespace poseidon::sync {

// A layer of the worker that speaks for its host: what the host's workers bring together goes through
// the layer's own syncer among the hosts, and the mean to all of them.
//
// Thread: the I/O executor. Lifetime: the leader outlives it.
class LeaderSyncer final : public Syncer {
 public:
  LeaderSyncer(local::Leader& leader, std::unique_ptr<Syncer> among_hosts, LayerId layer,
               plan::Scheme scheme);
  void Start(SyncRequest request) override;

 private:
  local::Leader& leader_;
  const std::unique_ptr<Syncer> among_hosts_;
  const LayerId layer_;
  const plan::Scheme scheme_;
  std::shared_ptr<LeaderSyncer*> alive_;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_LEADER_SYNCER_H_
