// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SFB_BROADCASTER_H_
#define POSEIDON_SFB_BROADCASTER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "poseidon/base/trace.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/plan/layer.h"
#include "poseidon/sfb/factor_store.h"
#include "poseidon/wire/messages.h"

namespace poseidon::sfb {

// Sufficient-factor broadcasting, exact and synchronous: every worker sends the factors of its rows
// to every other; whoever holds the rows of all ranks makes the mean gradient by one product, or of a table
// hands out those rows.
//
// Thread: the mesh's executor; products run on `compute`. Lifetime: mesh, compute and engine outlive
// it; a product under way finishes before the destructor's caller may free the gradient, because
// `done` has not fired.
class Broadcaster final : public messaging::FrameSink {
 public:
  struct Roster {
    MemberId self;
    Rank self_rank;
    std::vector<MemberId> worker_of_rank;
    // Where ranks are hosts, whose factors are those of all their workers, multiplied by their weights already: of all
    // hosts. 0: each rank is one worker.
    std::uint16_t workers = 0;
  };
  // `engine` may be null where every layer is a table.
  Broadcaster(Executor& executor, Executor& compute, messaging::Mesh& mesh, const Roster& roster,
              ProductEngine* engine, TraceRecorder* trace);

  // A layer that has factors can be broadcast from now on.
  void Declare(ModelId model, LayerId layer, const plan::LayerSpec& spec);
  bool declared(ModelId model, LayerId layer) const { return layers_.contains(LayerKey{model, layer}); }
  // Rows that a rank announced or was measured with: room for them is made in advance.
  void Expect(ModelId model, LayerId layer, Rank rank, std::uint32_t rows);

  struct Request {
    ModelId model;
    LayerId layer;
    Step step;
    Factors factors;            // lent until `done`; rows may be 0
    std::uint32_t weight = 0;   // of each row in the mean; 0: nothing beside weights, unweighted where all say so
    // Where the mean lands, lent until `done`: the flat gradient, in host memory, or of a table the rows.
    std::byte* gradient = nullptr;
    GatheredRows* gathered = nullptr;
    messaging::Priority priority;
    PlanEpoch plan_epoch;
    Completion done;
  };
  void Broadcast(Request request);

  // Adds the factors that products still lack.
  void AddWaits(std::vector<wire::Wait>* waits) const;
  void Abandon(const Status& reason);
  std::uint64_t allocated_bytes() const;

  // FrameSink, for kFactor:
  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override;
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override;

 private:
  struct LayerKey {
    ModelId model;
    LayerId layer;
    friend auto operator<=>(const LayerKey&, const LayerKey&) = default;
  };
  struct Outstanding {
    Step step;
    std::byte* gradient = nullptr;
    GatheredRows* gathered = nullptr;
    std::uint32_t unsent = 0;
    bool rebuilding = false;
    bool rebuilt = false;
    Status failure;
    Completion done;
  };
  struct LayerState {
    plan::FactorShape shape;
    DType dtype = DType::kF32;
    FactorStore store;
    std::optional<Outstanding> outstanding;
    std::uint64_t gathered_bytes = 0;  // allocated for the last mean
  };

  // kDataLoss for a frame that is not its sender's, names no layer with factors, or brings no whole rows.
  Result<LayerState*> Find(MemberId from, const wire::FrameHeader& header);
  static WeightedRows Brought(const LayerState& state, const wire::FrameHeader& header);
  void SendPart(const Request& request, const LayerState& state, Part part);
  void RebuildIfComplete(const LayerKey& key);
  void OnRebuilt(const LayerKey& key, Step step, const Status& status);
  void OnLeft(const LayerKey& key, Step step, const Status& status);
  void FinishIfDone(LayerState& state);

  Executor& executor_;
  Executor& compute_;
  messaging::Mesh& mesh_;
  const Roster roster_;
  ProductEngine* const engine_;
  TraceRecorder* const trace_;
  std::map<LayerKey, LayerState> layers_;
  Status abandoned_;
  std::shared_ptr<Broadcaster*> alive_;
};

}  // namespace poseidon::sfb

#endif  // POSEIDON_SFB_BROADCASTER_H_
