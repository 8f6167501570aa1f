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
#include "poseidon/local/host_memory.h"
#include "poseidon/local/leader.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/plan/layer.h"

namespace poseidon::local {

// This worker's part in combining on its host, for every model of the session: the first workers of a host lead, each a
// part of the layers, and all follow the others. Each model has memory of its own.
// Thread: the mesh's executor. Lifetime: the mesh outlives it.
class HostLevel final : public messaging::FrameSink {
 public:
  // Where a worker is on its host.
  struct Place {
    std::vector<MemberId> members;  // the host's workers in rank order
    std::size_t place = 0;          // this one's among them
    std::uint16_t leaders = 1;      // the first so many of every host
    Rank self_rank;
  };
  // `trace` may be null.
  HostLevel(Executor& executor, messaging::Mesh& mesh, Place place, TraceRecorder* trace);

  std::size_t workers() const { return place_.members.size(); }
  std::size_t place() const { return place_.place; }
  std::uint16_t leaders() const { return place_.leaders; }
  bool leads() const { return place_.place < place_.leaders; }

  // The layers of a model, once. The first worker of the host makes the memory for them, and the others attach to it.
  Status Declare(ModelId model, std::span<const plan::LayerSpec> layers);
  // The first worker offers its memory, perhaps before this one declares the model. kDataLoss, kUnavailable: see HostMemory.
  Status Attach(MemberId from, const wire::Segment& offer);
  // Whether the memory is there. Of a declared model.
  bool is_ready(ModelId model) const;
  // All have attached; nobody does from now on.
  void Close(ModelId model);
  // Of a declared model.
  const HostMemory& MemoryOf(ModelId model) const;
  // Of a declared model. Pre: this worker leads; others lead.
  Leader& LeaderOf(ModelId model);
  Follower& FollowerOf(ModelId model);

  // Adds the shares of this host that the sums of this worker still lack, and the means that it waits for.
  void AddWaits(std::vector<wire::Wait>* waits) const;
  void Abandon(const Status& reason);
  // Written to the memory or read from it, for one layer.
  std::uint64_t moved_bytes(ModelId model, LayerId layer) const;
  // The memory counts at the worker that made it: what is touched of it, a dense gradient of every worker.
  std::uint64_t allocated_bytes() const;

  // FrameSink, for kLocal:
  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override;
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override;

 private:
  struct OfModel {
    HostMemory memory;
    std::unique_ptr<Leader> leader;      // where this worker leads
    std::unique_ptr<Follower> follower;  // where it has company
    std::uint64_t dense_bytes = 0;
  };
  OfModel& Of(ModelId model);
  // kDataLoss for a frame of a model or a role that is not here.
  Result<messaging::FrameSink*> SinkOf(const wire::FrameHeader& header) const;

  Executor& executor_;
  messaging::Mesh& mesh_;
  const Place place_;
  TraceRecorder* const trace_;
  std::map<ModelId, OfModel> models_;
};

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_HOST_LEVEL_H_
