// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_HOST_LEVEL_H_
#define POSEIDON_LOCAL_HOST_LEVEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "poseidon/base/trace.h"
#include "poseidon/local/follower.h"
#include "poseidon/local/leader.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/plan/layer.h"

namespace poseidon::local {

// This worker's part in combining on its host, for every model of the session: the first worker of a host
// leads, the others follow it. Each model has a segment of its own.
// Thread: the mesh's executor. Lifetime: the mesh outlives it.
class HostLevel final : public messaging::FrameSink {
 public:
  // `members`: the host's workers in rank order; `place`: this one's among them. `trace` may be null.
  HostLevel(Executor& executor, messaging::Mesh& mesh, std::vector<MemberId> members, std::size_t place,
            Rank self_rank, TraceRecorder* trace);

  bool leads() const { return place_ == 0; }
  // The layers of a model, once: the leader makes a segment for them, the others attach to it.
  Status Declare(ModelId model, std::span<const plan::LayerSpec> layers);
  // Made at first use. Pre: leads() for the leader, not leads() for the follower.
  Leader& LeaderOf(ModelId model);
  Follower& FollowerOf(ModelId model);

  // Adds the shares of this host that sums still lack, where this worker leads, and else the means that it waits for.
  void AddWaits(std::vector<wire::Wait>* waits) const;
  void Abandon(const Status& reason);
  // Written to the segment or read from it, for one layer.
  std::uint64_t moved_bytes(ModelId model, LayerId layer) const;
  std::uint64_t allocated_bytes() const;

  // FrameSink, for kLocal:
  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override;
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override;

 private:
  messaging::FrameSink* SinkOf(ModelId model);

  Executor& executor_;
  messaging::Mesh& mesh_;
  const std::vector<MemberId> members_;
  const std::size_t place_;
  const Rank self_rank_;
  TraceRecorder* const trace_;
  std::map<ModelId, std::unique_ptr<Leader>> leaders_;
  std::map<ModelId, std::unique_ptr<Follower>> followers_;
};

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_HOST_LEVEL_H_
