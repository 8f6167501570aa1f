// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FSC_EXCHANGE_H_
#define POSEIDON_FSC_EXCHANGE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "poseidon/fsc/owner.h"
#include "poseidon/fsc/sender.h"
#include "poseidon/sync/exchange.h"

namespace poseidon::fsc {

// Fully connected layers by factor scatter: this member's shard, where it has one, and its worker's side. Without an
// engine there is neither.
class Exchange final : public sync::Exchange {
 public:
  explicit Exchange(const sync::ExchangeEnvironment& env);

  plan::Scheme scheme() const override { return plan::Scheme::kFactorScatter; }
  void Declare(ModelId model, std::span<const plan::LayerSpec> layers) override;
  // Makes room in advance for the rows that a final plan was made of.
  void UsePlan(ModelId model, const plan::Plan& plan) override;
  void Start(const wire::Key& key, sync::SyncRequest request) override;
  messaging::FrameSink* SinkOf(wire::FrameType type) override;
  void AddWaits(std::vector<wire::Wait>* waits) const override;
  void Abandon(const Status& reason) override;
  std::uint64_t allocated_bytes() const override;
  // declared_bytes stays 0: a layer that no plan scatters allocates nothing, and one that a plan scatters takes less
  // than its slices would: the rows of all ranks and one part, instead of a part of each rank.

 private:
  const std::uint16_t shards_;
  std::optional<Owner> owner_;
  std::optional<Sender> sender_;
};

}  // namespace poseidon::fsc

#endif  // POSEIDON_FSC_EXCHANGE_H_
