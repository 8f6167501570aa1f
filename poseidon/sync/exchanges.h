// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_EXCHANGES_H_
#define POSEIDON_SYNC_EXCHANGES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "poseidon/sync/exchange.h"

namespace poseidon::sync {

// A member's exchanges, one per scheme. Thread: the I/O executor.
class Exchanges {
 public:
  void Add(std::unique_ptr<Exchange> exchange);

  // Pre: one of this scheme was added.
  Exchange& Of(plan::Scheme scheme) const;
  // Who takes this frame of a layer; null where this member takes no part.
  messaging::FrameSink* SinkOf(const wire::FrameHeader& header) const;

  // For all of them; see Exchange.
  void Declare(ModelId model, std::span<const plan::LayerSpec> layers) const;
  void UsePlan(ModelId model, const plan::Plan& plan) const;
  void AddWaits(std::vector<wire::Wait>* waits) const;
  // For gradients; under schemes that take factors, the exchange may have none.
  std::optional<OwnMemory> MemoryOf(const wire::Key& key) const;
  void Abandon(const Status& reason) const;
  std::uint64_t allocated_bytes() const;
  std::uint64_t declared_bytes() const;

 private:
  Exchange* Find(plan::Scheme scheme) const;

  std::vector<std::unique_ptr<Exchange>> exchanges_;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_EXCHANGES_H_
