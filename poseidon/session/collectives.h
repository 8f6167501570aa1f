// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_COLLECTIVES_H_
#define POSEIDON_SESSION_COLLECTIVES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "poseidon/kv/client.h"
#include "poseidon/kv/server.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/sync/topology.h"

namespace poseidon::session {

// Sums and broadcasts beside the training steps: one-off keys of a key-value store among all workers.
//
// Thread: the I/O executor; completions fire there, never within the call.
// Lifetime: the mesh outlives it.
class Collectives {
 public:
  // `differ` is called when workers call different collectives, which then can never complete.
  Collectives(Executor& io, messaging::Mesh& mesh, const sync::Topology& flat, const sync::Strategy& strategy,
              std::function<void(const Status&)> differ);

  // In the same order on every worker. Sums `view` over the ranks that contribute, in rank order,
  // unscaled, and leaves the sum in every rank's `view`.
  void Sum(TensorView view, bool contribute, Completion done);
  // The same, and only `root` contributes; workers that name different roots, or call Sum, differ.
  void Broadcast(TensorView view, Rank root, Completion done);
  // A sum that belongs to one step of this model. Its order among other calls and other steps' sums is free.
  void StepSum(ModelId model, Step step, TensorView view, Completion done);

  // Who takes the frames of one-off keys of this type; null where this member takes none.
  messaging::FrameSink* SinkOf(wire::FrameType type);
  // Adds the contributions and results that this member waits for, with the members that owe them.
  void AddWaits(std::vector<wire::Wait>* waits) const;
  // Fails every call that waits, and those that follow.
  void Abandon(const Status& reason);
  std::uint64_t allocated_bytes() const;

 private:
  struct OneOff {
    LayerId number;
    bool contribute = true;
    std::uint32_t kind = kv::kSum;
  };
  LayerId Next(const TensorView& view);
  void Start(const OneOff& one, TensorView view, Completion done);

  Executor& io_;
  const std::function<void(const Status&)> differ_;
  const std::optional<Rank> self_rank_;
  std::optional<kv::Server> server_;
  std::optional<kv::Client> client_;
  std::uint32_t next_ = 0;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_COLLECTIVES_H_
