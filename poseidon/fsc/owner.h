// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FSC_OWNER_H_
#define POSEIDON_FSC_OWNER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/factors/rebuild.h"
#include "poseidon/fsc/part.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/plan/history.h"
#include "poseidon/sync/exchange.h"
#include "poseidon/sync/factor_inbox.h"

namespace poseidon::fsc {

// Hosts one shard: collects every rank's factors of the units that belong to it, makes their mean gradient by one
// product, and sends it to every worker as kResult frames. A worker's own part is written over its gradient; a
// dedicated server has one buffer per layer, allocated at its first product.
//
// One buffer is enough: a rank sends the factors of step t+1 only when it holds the whole mean of step t, and the
// product of t+1 begins only when all ranks' factors of t+1 are in.
//
// Thread: the I/O executor; products run on `compute`. Lifetime: the environment outlives it; a product under way
// finishes before the caller may free the gradient, because `done` has not fired.
class Owner {
 public:
  // Pre: env.among.self_shard(), and env.engine.
  explicit Owner(const sync::ExchangeEnvironment& env);

  std::uint16_t shard() const { return shard_; }

  // A layer of which this shard has a part. Pre: the model of `key` has a plan by the first product.
  void Declare(const wire::Key& key, const plan::LayerSpec& layer, const LayerPart& part);
  // Results leave in the plan's order from its switch step on.
  void UsePlan(ModelId model, const plan::Plan& plan);
  void Expect(const wire::Key& key, std::span<const std::uint32_t> rows) { inbox_.Expect(key, rows); }

  // The contribution of this process's worker to its own part: `factors` are u of the part's units, and v, copied within
  // the call. The mean lands in the part's stretches of the contribution's gradient; `done` fires when it has, and every
  // frame that reads them has left.
  void Local(const wire::Key& key, const sync::Contribution& own, const Factors& factors, Completion done);

  // Takes the frames of factors.
  messaging::FrameSink& inbox() { return inbox_; }
  void AddWaits(std::vector<wire::Wait>* waits) const { inbox_.AddWaits(waits); }
  void Abandon(const Status& reason);
  std::uint64_t allocated_bytes() const;

 private:
  struct Layer {
    plan::LayerSpec spec;
    LayerPart part;
    std::optional<Step> step = std::nullopt;  // whose mean is being made or sent
    bool multiplying = false;
    bool local = false;         // the local worker waits for the mean
    std::byte* gradient = nullptr;
    Completion local_done = {};
    std::uint32_t unsent = 0;   // frames that still read the mean
    factors::AlignedBytes own = {};  // of a dedicated server: weight, then bias
    std::uint64_t own_bytes = 0;
  };
  // Where a layer's mean is written, and read from.
  struct Places {
    std::byte* weight = nullptr;
    std::byte* bias = nullptr;
  };

  void MultiplyIfComplete(const wire::Key& key);
  Result<Places> PlacesOf(Layer& layer);
  void OnProduct(const wire::Key& key, Step step, const Status& status);
  void SendMean(const wire::Key& key, Layer& layer);
  void OnLeft(const wire::Key& key, Step step);
  void FinishIfDone(Layer& layer, const Status& status);

  const sync::ExchangeEnvironment env_;
  const bool has_worker_;
  const std::uint16_t shard_;
  sync::FactorInbox inbox_;
  std::map<wire::Key, Layer> layers_;
  std::map<ModelId, plan::History> plans_;
  Status abandoned_;
  Alive alive_;
};

}  // namespace poseidon::fsc

#endif  // POSEIDON_FSC_OWNER_H_
