// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_HOST_LEVEL_H_
#define POSEIDON_SESSION_HOST_LEVEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "poseidon/base/trace.h"
#include "poseidon/local/follower.h"
#include "poseidon/local/leader.h"
#include "poseidon/messaging/mesh.h"

namespace poseidon::session {

// This worker's part in combining on its host, for every model of the session: the first worker of a host
// leads, the others follow it. Each model has a segment of its own.
// Thread: the mesh's executor. Lifetime: the mesh outlives it.
class HostLevel final : public messaging::FrameSink {
 public:
  // `members`: the host's workers in rank order; `place`: this one's among them. `trace` may be null.
  HostLevel(Executor& executor, messaging::Mesh& mesh, std::vector<MemberId> members, std::size_t place,
            Rank self_rank, TraceRecorder* trace);

  bool leads() const { return place_ == 0; }
  // Made at their first use. Pre: leads(), or not.
  local::Leader& LeaderOf(ModelId model);
  local::Follower& FollowerOf(ModelId model);

  // Adds the shares of this host that sums still lack, where this worker leads.
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
  std::map<ModelId, std::unique_ptr<local::Leader>> leaders_;
  std::map<ModelId, std::unique_ptr<local::Follower>> followers_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_HOST_LEVEL_H_
