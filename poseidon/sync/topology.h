// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_TOPOLOGY_H_
#define POSEIDON_SYNC_TOPOLOGY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "poseidon/base/strong_id.h"

namespace poseidon::sync {

// The roles of members in one generation. Fixed while the generation lasts.
struct Topology {
  MemberId self;
  std::optional<Rank> self_rank;         // absent on a dedicated server, and where others exchange for this worker
  std::vector<MemberId> worker_of_rank;  // by rank: P of them
  std::vector<MemberId> owner_of_shard;  // by shard: the P workers, or the S dedicated servers
  // Where ranks are hosts, whose contributions are sums over their workers: the workers of all hosts
  // together. 0: each rank is one worker.
  std::uint16_t workers = 0;

  // Whether the only rank is the host of all workers.
  bool is_one_host() const { return workers != 0 && ranks() == 1 && owner_of_shard == worker_of_rank; }

  std::uint16_t ranks() const { return static_cast<std::uint16_t>(worker_of_rank.size()); }
  std::uint16_t shards() const { return static_cast<std::uint16_t>(owner_of_shard.size()); }
  // The divisor of an unweighted mean.
  std::uint16_t contributors() const { return workers != 0 ? workers : ranks(); }
  // The shard that this member hosts, if it hosts one.
  std::optional<std::uint16_t> self_shard() const {
    for (std::uint16_t s = 0; s < shards(); ++s) {
      if (owner_of_shard[s] == self) return s;
    }
    return std::nullopt;
  }
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_TOPOLOGY_H_
