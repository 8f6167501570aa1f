// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_LEADER_H_
#define POSEIDON_LOCAL_LEADER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "poseidon/base/trace.h"
#include "poseidon/local/host_memory.h"
#include "poseidon/local/share.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/wire/messages.h"

namespace poseidon::local {

// A worker that exchanges a part of the layers for its host (Share::parts). Two moves per layer and step: Combine, when all
// workers of the host have brought their shares, gives what they bring together; when the mean of all hosts is where
// Combine said, Spread gives it to everyone here. Sums are in rank order, factors concatenated likewise.
//
// Thread: the mesh's executor, in stretches, so that the network is served meanwhile. Lifetime: mesh and memory
// outlive it; it outlives whatever still reads or writes what Combine gave.
class Leader final : public messaging::FrameSink {
 public:
  // `members`: the host's workers in rank order; `place`: this one's among them. `trace` may be null.
  Leader(Executor& executor, messaging::Mesh& mesh, std::vector<MemberId> members, std::size_t place,
         const HostMemory& memory, TraceRecorder* trace);

  // The layers of a model, once.
  void Declare(ModelId model, std::span<const plan::LayerSpec> layers);
  // Of which layers it leads some under a scheme, by number; none before. Behind Declare.
  void Lead(plan::Scheme scheme, std::vector<bool> layers);

  // What the host brings: the own contribution, but `gradient` is the unscaled sum, of the part that this worker leads, and
  // where the mean shall be written, `factors`, where the scheme takes them, are all workers' rows, multiplied by their weights
  // and lent until Spread, it is absent where nobody brings anything, and its weight is the sum of those that are in it.
  using TakeCombined = UniqueFunction<void(Result<sync::Contribution>)>;
  // One step per layer at a time, of a layer of which this worker leads some. `combined` may be called within the call.
  void Combine(const Share& share, TakeCombined combined);
  // Pre: Combine has answered for this layer, and the mean is where that said, or in the share's `gathered`. `done` fires,
  // never within the call, when the own part of the mean is in the share's gradient (which is free there then), unless the mean stays
  // in the memory. With a failure there is nothing to spread. kInvalidArgument where more rows were gathered than the slot holds.
  void Spread(LayerId layer, const Status& status, Completion done);

  // Adds the shares of this host that sums still lack.
  void AddWaits(std::vector<wire::Wait>* waits) const;
  // Fails what waits, and whatever follows.
  void Abandon(const Status& reason);

  // Written to the memory or read from it, for one layer.
  std::uint64_t moved_bytes(LayerId layer) const;
  // Of concatenations.
  std::uint64_t allocated_bytes() const;

  // FrameSink, for kLocal: never any bytes.
  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override;
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override;

 private:
  // Another worker's message that its slot is filled.
  struct Arrival {
    bool here = false;
    Step step;
    plan::Scheme scheme = plan::Scheme::kKeyValue;
    bool absent = false;
    std::uint32_t weight = 0;
    std::uint64_t rows = 0;  // of factors
  };
  // This worker's step under way. Whoever still works for it holds it weakly.
  struct Round {
    Share share;
    bool begun = false;  // all shares are there
    TakeCombined combined;
    sync::Contribution result;
    Completion done;  // of Spread
  };
  struct LayerState {
    plan::LayerSpec spec;
    std::vector<Arrival> arrivals;  // by place; the own one stays unused until all are there
    std::shared_ptr<Round> round;
    ByteBuffer u;  // the concatenation
    ByteBuffer v;
    std::uint64_t moved = 0;
  };

  const std::vector<ByteRange>& OwnPart(const Share& share) const { return share.parts->at(place_); }
  Status Fits(const LayerState& state, const Arrival& arrival) const;
  void CombineIfComplete(LayerState& state);
  void CombineDense(LayerState& state, std::vector<Arrival> arrivals);
  void CombineFactors(LayerState& state, std::vector<Arrival> arrivals);
  void Answer(const std::shared_ptr<Round>& round);
  void SpreadGathered(LayerState& state);
  void SayItIsThere(const LayerState& state, std::uint64_t bytes);
  void EndRound(LayerState& state, const Status& status);
  void Fail(LayerState& state, const Status& reason);

  Executor& executor_;
  messaging::Mesh& mesh_;
  const std::vector<MemberId> members_;
  const std::size_t place_;
  const HostMemory& memory_;
  TraceRecorder* const trace_;
  ModelId model_;
  std::vector<LayerState> layers_;
  std::map<plan::Scheme, std::vector<bool>> led_;
  Status abandoned_;
};

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_LEADER_H_
