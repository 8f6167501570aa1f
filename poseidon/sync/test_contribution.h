// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_TEST_CONTRIBUTION_H_
#define POSEIDON_SYNC_TEST_CONTRIBUTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "poseidon/sync/exchange.h"

// For tests of what hands a contribution on.
namespace poseidon::sync::testing {

// A contribution of which no field has its default. The binding names every field, so that a new one does not compile
// before it has a value here.
inline Contribution FullContribution(std::span<float> numbers) {
  Contribution full;
  auto& [step, gradient, factors, absent, weight, rows, on_device, ready, in_parts] = full;
  step = Step(3);
  gradient = ViewOf(numbers);
  factors = Factors{gradient.memory, gradient.memory, 1};
  absent = true;
  weight = 7;
  rows = 5;
  on_device = true;
  ready = std::make_shared<device::EventState>();
  in_parts = true;
  return full;
}

// Keeps the request that it is given last.
class KeptExchange final : public Exchange {
 public:
  plan::Scheme scheme() const override { return plan::Scheme::kKeyValue; }
  std::uint16_t divides_over() const override { return divided_over; }
  void Declare(ModelId, std::span<const plan::LayerSpec>) override {}
  void UsePlan(ModelId, const plan::Plan&) override {}
  void Start(const wire::Key&, SyncRequest request) override { kept = std::move(request); }
  messaging::FrameSink* SinkOf(wire::FrameType) override { return nullptr; }
  void AddWaits(std::vector<wire::Wait>*) const override {}
  void Abandon(const Status&) override {}
  std::uint64_t allocated_bytes() const override { return 0; }

  std::uint16_t divided_over = 0;
  std::optional<SyncRequest> kept;
};

}  // namespace poseidon::sync::testing

#endif  // POSEIDON_SYNC_TEST_CONTRIBUTION_H_
