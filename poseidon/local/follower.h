// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_FOLLOWER_H_
#define POSEIDON_LOCAL_FOLLOWER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "poseidon/local/host_memory.h"
#include "poseidon/local/share.h"
#include "poseidon/messaging/mesh.h"

namespace poseidon::local {

// A worker for which other workers of its host exchange a part of the layers: it copies its share of that part into
// the host's memory, and the mean out of it.
//
// Thread: the mesh's executor, in stretches. Lifetime: mesh and memory outlive it.
class Follower final : public messaging::FrameSink {
 public:
  // `members`: the host's workers in rank order; `place`: this one's among them.
  Follower(Executor& executor, messaging::Mesh& mesh, std::vector<MemberId> members, std::size_t place, Rank self_rank,
           const HostMemory& memory);

  // The layers of a model, once.
  void Declare(ModelId model, std::span<const plan::LayerSpec> layers);

  // One step per layer at a time, of a layer of which others lead some. `done` fires, never within the call, when that part
  // of the mean is in the share's gradient, in what it gathers to, or in the memory where it stays; kInvalidArgument where
  // there are more rows than the slot holds, or factors in it that are not laid out as there.
  void Contribute(const Share& share, Completion done);

  // Adds the means that this worker waits for.
  void AddWaits(std::vector<wire::Wait>* waits) const;

  // Fails what waits, and whatever follows.
  void Abandon(const Status& reason);

  // Written to the memory or read from it, for one layer.
  std::uint64_t moved_bytes(LayerId layer) const;

  // FrameSink, for kLocal: never any bytes.
  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override;
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override;

 private:
  // What became of the part of one leader.
  enum class Stage : std::uint8_t {
    kNone,     // it has none, or is this worker
    kCopying,  // the share into the slot
    kTold,     // the leader knows that it is there
    kLanding,  // the mean is there and copied out
    kLanded,
  };
  // The step under way. Whoever still copies for it holds it weakly.
  struct Round {
    Share share;
    bool in_slot = false;
    std::vector<Stage> stages;  // by place
    Completion done;
  };
  struct LayerState {
    plan::LayerSpec spec;
    std::shared_ptr<Round> round;
    std::uint64_t moved = 0;
  };

  // Whether what the share brings is in its slot already. kInvalidArgument where a part of its factors is, in another place.
  Result<bool> IsInSlot(const LayerState& state, const Share& share) const;
  void CopyIn(LayerState& state, std::size_t leader);
  void Tell(LayerState& state, std::size_t leader);
  void OnLanded(LayerState& state, std::size_t leader);
  Status LandGathered(LayerState& state, std::size_t leader, std::uint64_t bytes);
  void Land(LayerState& state, std::size_t leader, std::vector<ByteRange> part, Work copy);
  void Finish(LayerState& state, const Status& status);

  Executor& executor_;
  messaging::Mesh& mesh_;
  const std::vector<MemberId> members_;
  const std::size_t place_;
  const Rank self_rank_;
  const HostMemory& memory_;
  ModelId model_;
  std::vector<LayerState> layers_;
  Status abandoned_;
};

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_FOLLOWER_H_
