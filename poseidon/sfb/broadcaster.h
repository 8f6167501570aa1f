// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SFB_BROADCASTER_H_
#define POSEIDON_SFB_BROADCASTER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/base/trace.h"
#include "poseidon/factors/rebuild.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/plan/layer.h"
#include "poseidon/sync/exchange.h"
#include "poseidon/sync/factor_inbox.h"
#include "poseidon/sync/factor_outbox.h"
#include "poseidon/wire/messages.h"

namespace poseidon::sfb {

// Sufficient-factor broadcasting, exact and synchronous: every worker sends the factors of its rows
// to every other; whoever holds the rows of all ranks makes the mean gradient by one product. Of a table, and of a layer whose
// product the device makes, it hands out those rows.
//
// Thread: the mesh's executor; products run on `compute`. Lifetime: mesh, compute and engine outlive
// it; a product under way finishes before the destructor's caller may free the gradient, because
// `done` has not fired.
class Broadcaster {
 public:
  // Pre: topology.self_rank.
  // `engine` may be null where every layer is a table.
  Broadcaster(const sync::ExchangeEnvironment& env, const sync::Topology& topology, factors::ProductEngine* engine);

  // A layer that has factors can be broadcast from now on.
  void Declare(const wire::Key& key, const plan::LayerSpec& spec);
  bool declared(const wire::Key& key) const { return inbox_.has(key); }
  // What bytes cost, from now on.
  void UsePlan(const plan::Plan& plan) { compression_.UsePlan(plan); }
  // Rows by rank that a plan was made of: room for them is made in advance.
  void Expect(const wire::Key& key, std::span<const std::uint32_t> rows) { inbox_.Expect(key, rows); }

  // Sends `request.factors`, whose rows may be 0, as those of an absent contribution are. A weight is that of each row in
  // the mean; 0: nothing beside weights, unweighted where all say so. The mean lands in `request.gradient`, in host
  // memory, or in `request.gathered` where that is given.
  void Broadcast(const wire::Key& key, sync::SyncRequest request);

  // Takes the frames of factors.
  messaging::FrameSink& inbox() { return inbox_; }
  // Adds the factors that products still lack.
  void AddWaits(std::vector<wire::Wait>* waits) const { inbox_.AddWaits(waits); }
  void Abandon(const Status& reason);
  std::uint64_t allocated_bytes() const;

 private:
  struct Outstanding {
    Step step;
    std::byte* gradient = nullptr;
    factors::GatheredRows* gathered = nullptr;
    std::uint32_t unsent = 0;
    bool rebuilding = false;
    bool rebuilt = false;
    Status failure;
    Completion done;
  };
  struct LayerState {
    plan::FactorShape shape;
    DType dtype = DType::kF32;
    std::optional<Outstanding> outstanding;
    sync::PackedFactor u = {};
    sync::PackedFactor v = {};
    std::uint64_t gathered_bytes = 0;  // allocated for the last mean
  };

  void RebuildIfComplete(const wire::Key& key);
  void OnRebuilt(const wire::Key& key, Step step, const Status& status);
  void OnLeft(const wire::Key& key, Step step, const Status& status);
  void FinishIfDone(LayerState& state);

  Executor& executor_;
  Executor& compute_;
  messaging::Mesh& mesh_;
  const sync::Topology topology_;
  factors::ProductEngine* const engine_;
  TraceRecorder* const trace_;
  sync::FactorInbox inbox_;
  sync::CompressionRule compression_;
  std::map<wire::Key, LayerState> layers_;
  Status abandoned_;
  Alive alive_;
};

}  // namespace poseidon::sfb

#endif  // POSEIDON_SFB_BROADCASTER_H_
