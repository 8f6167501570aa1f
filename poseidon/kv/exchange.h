// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_KV_EXCHANGE_H_
#define POSEIDON_KV_EXCHANGE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "poseidon/kv/client.h"
#include "poseidon/kv/server.h"
#include "poseidon/sync/exchange.h"

namespace poseidon::kv {

// Layers through the sharded key-value store: this member's shard, where it has one, and its worker's side.
class Exchange final : public sync::Exchange {
 public:
  explicit Exchange(const sync::ExchangeEnvironment& env);

  plan::Scheme scheme() const override { return plan::Scheme::kKeyValue; }
  void Declare(ModelId model, std::span<const plan::LayerSpec> layers) override;
  void UsePlan(ModelId model, const plan::Plan& plan) override;
  void Start(const Key& key, sync::SyncRequest request) override;
  bool takes_parts() const override { return true; }
  std::uint16_t divides_over() const override;
  void Arrived(const Key& key, std::uint64_t elements) override;
  messaging::FrameSink* SinkOf(wire::FrameType type) override;
  void AddWaits(std::vector<wire::Wait>* waits) const override;
  void Abandon(const Status& reason) override;
  std::uint64_t allocated_bytes() const override;
  std::uint64_t declared_bytes() const override;

 private:
  const std::uint16_t shards_;
  const plan::Placement placement_;
  const plan::LaneShare lane_;
  std::optional<Server> server_;
  std::optional<Client> client_;
};

}  // namespace poseidon::kv

#endif  // POSEIDON_KV_EXCHANGE_H_
