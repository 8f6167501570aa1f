// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_FOLLOWER_H_
#define POSEIDON_LOCAL_FOLLOWER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "poseidon/local/layout.h"
#include "poseidon/local/segment.h"
#include "poseidon/local/share.h"
#include "poseidon/messaging/mesh.h"

namespace poseidon::local {

// A worker for which its host's leader exchanges: it copies its share into the leader's segment, and the
// mean out of it.
//
// Thread: the mesh's executor, in stretches. Lifetime: the mesh outlives it.
class Follower final : public messaging::FrameSink {
 public:
  struct Place {
    Rank self_rank;
    MemberId leader;
    std::uint32_t place = 1;   // among the host's workers in rank order
    std::uint32_t places = 2;  // of them
  };
  Follower(Executor& executor, messaging::Mesh& mesh, const Place& place);

  // Both in any order, before the first Contribute: the layers, and the leader's segment for them.
  Status Declare(ModelId model, std::vector<plan::LayerSpec> layers);
  Status Attach(MemberId from, const wire::Segment& offer);
  bool attached() const { return segment_ != nullptr; }

  // One step per layer at a time. `done` fires, never within the call, when the mean is in the share's
  // gradient, or in what it gathers to; kInvalidArgument where there are more rows than the slot holds.
  void Contribute(const Share& share, Completion done);

  // Adds the means that this worker waits for.
  void AddWaits(std::vector<wire::Wait>* waits) const;

  // Fails what waits, and whatever follows.
  void Abandon(const Status& reason);

  // Written to the segment or read from it, for one layer.
  std::uint64_t moved_bytes(LayerId layer) const;

  // FrameSink, for kLocal: never any bytes.
  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override;
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override;

 private:
  // The step under way. Whoever still copies for it holds it weakly.
  struct Round {
    Share share;
    bool told = false;    // the share is in the slot, the leader knows
    bool landing = false;  // the mean is in the segment and being copied out
    Completion done;
  };
  struct LayerState {
    plan::LayerSpec spec;
    std::shared_ptr<Round> round;
    std::uint64_t moved = 0;
  };

  Status AttachIfBoth();
  std::byte* Slot(LayerId layer, std::uint32_t place) const;
  void CopyIn(LayerState& state);
  void Tell(LayerState& state);
  Status LandGathered(LayerState& state, std::uint64_t bytes);
  void Land(LayerState& state, std::uint64_t bytes, std::function<void(std::uint64_t, std::uint64_t)> copy);
  void Finish(LayerState& state, const Status& status);

  Executor& executor_;
  messaging::Mesh& mesh_;
  const Place place_;
  ModelId model_;
  Layout layout_;
  std::unique_ptr<wire::Segment> offer_;
  std::unique_ptr<Segment> segment_;
  std::vector<LayerState> layers_;
  Status abandoned_;
};

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_FOLLOWER_H_
