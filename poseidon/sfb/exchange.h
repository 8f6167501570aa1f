// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SFB_EXCHANGE_H_
#define POSEIDON_SFB_EXCHANGE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "poseidon/messaging/frame_router.h"
#include "poseidon/sfb/broadcaster.h"
#include "poseidon/sync/exchange.h"

namespace poseidon::sfb {

// Layers through their factors, and tables through their rows. Factors go among those who exchange layers; rows go
// from every worker to every other, because nothing is summed of them before. A dedicated server takes no part.
class Exchange final : public sync::Exchange {
 public:
  explicit Exchange(const sync::ExchangeEnvironment& env);

  plan::Scheme scheme() const override { return plan::Scheme::kFactorBroadcast; }
  void Declare(ModelId model, std::span<const plan::LayerSpec> layers) override;
  // Makes room in advance for the rows that a final plan was made of.
  void UsePlan(ModelId model, const plan::Plan& plan) override;
  void Start(const wire::Key& key, sync::SyncRequest request) override;
  messaging::FrameSink* SinkOf(wire::FrameType type) override;
  void AddWaits(std::vector<wire::Wait>* waits) const override;
  void Abandon(const Status& reason) override;
  std::uint64_t allocated_bytes() const override;

 private:
  Broadcaster* Of(const wire::Key& key);

  std::optional<Broadcaster> layers_;
  std::optional<Broadcaster> tables_;
  messaging::FrameRouter router_;
};

}  // namespace poseidon::sfb

#endif  // POSEIDON_SFB_EXCHANGE_H_
