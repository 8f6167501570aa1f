// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_WRAPPED_EXCHANGE_H_
#define POSEIDON_SYNC_WRAPPED_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "poseidon/sync/exchange.h"

namespace poseidon::sync {

// An exchange around another one: it forwards every call except the start of a step, and takes no parts.
class WrappedExchange : public Exchange {
 public:
  explicit WrappedExchange(std::unique_ptr<Exchange> inner) : inner_(std::move(inner)) {}

  plan::Scheme scheme() const override { return inner_->scheme(); }
  void Declare(ModelId model, std::span<const plan::LayerSpec> layers) override { inner_->Declare(model, layers); }
  void UsePlan(ModelId model, const plan::Plan& plan) override { inner_->UsePlan(model, plan); }
  messaging::FrameSink* SinkOf(wire::FrameType type) override { return inner_->SinkOf(type); }
  void AddWaits(std::vector<wire::Wait>* waits) const override { inner_->AddWaits(waits); }
  void Abandon(const Status& reason) override { inner_->Abandon(reason); }
  std::uint64_t allocated_bytes() const override { return inner_->allocated_bytes(); }
  std::uint64_t declared_bytes() const override { return inner_->declared_bytes(); }

 protected:
  Exchange& inner() { return *inner_; }
  const Exchange& inner() const { return *inner_; }

 private:
  const std::unique_ptr<Exchange> inner_;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_WRAPPED_EXCHANGE_H_
