// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/exchanges.h"

#include <string>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::sync {

void Exchanges::Add(std::unique_ptr<Exchange> exchange) {
  POSEIDON_CHECK(Find(exchange->scheme()) == nullptr, "a scheme has one exchange");
  exchanges_.push_back(std::move(exchange));
}

// There are a few of them: a search is as quick as a table.
Exchange* Exchanges::Find(plan::Scheme scheme) const {
  for (const auto& exchange : exchanges_) {
    if (exchange->scheme() == scheme) return exchange.get();
  }
  return nullptr;
}

Exchange& Exchanges::Of(plan::Scheme scheme) const {
  Exchange* const exchange = Find(scheme);
  POSEIDON_CHECK(exchange != nullptr, "a plan names schemes that this member can follow");
  return *exchange;
}

messaging::FrameSink* Exchanges::SinkOf(const wire::FrameHeader& header) const {
  Exchange* const exchange = Find(header.scheme);
  return exchange == nullptr ? nullptr : exchange->SinkOf(header.type);
}

void Exchanges::Declare(ModelId model, std::span<const plan::LayerSpec> layers) const {
  for (const auto& exchange : exchanges_) exchange->Declare(model, layers);
}

void Exchanges::UsePlan(ModelId model, const plan::Plan& plan) const {
  for (const auto& exchange : exchanges_) exchange->UsePlan(model, plan);
}

void Exchanges::AddWaits(std::vector<wire::Wait>* waits) const {
  for (const auto& exchange : exchanges_) exchange->AddWaits(waits);
}

std::optional<OwnMemory> Exchanges::MemoryOf(const wire::Key& key) const {
  return Of(plan::Scheme::kKeyValue).MemoryOf(key);
}

void Exchanges::Abandon(const Status& reason) const {
  for (const auto& exchange : exchanges_) exchange->Abandon(reason);
}

std::uint64_t Exchanges::allocated_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& exchange : exchanges_) sum += exchange->allocated_bytes();
  return sum;
}

std::uint64_t Exchanges::declared_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& exchange : exchanges_) sum += exchange->declared_bytes();
  return sum;
}

}  // namespace poseidon::sync
