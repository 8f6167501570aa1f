// SPDX-License-Identifier: Apache-2.0
#include "poseidon/fsc/exchange.h"

#include <utility>

#include "poseidon/plan/hosts.h"

namespace poseidon::fsc {

Exchange::Exchange(const sync::ExchangeEnvironment& env) : shards_(env.among.shards()) {
  if (env.engine == nullptr) return;
  if (env.among.self_shard()) owner_.emplace(env);
  if (env.among.self_rank) sender_.emplace(env, owner_ ? &*owner_ : nullptr);
}

void Exchange::Declare(ModelId model, std::span<const plan::LayerSpec> layers) {
  for (std::uint32_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].factors || layers[i].is_table()) continue;
    const wire::Key key{model, LayerId(i)};
    std::vector<LayerPart> parts;
    for (const plan::UnitRange& units : plan::DivideUnits(*layers[i].factors, shards_)) {
      parts.emplace_back(layers[i], units);
      if (owner_ && owner_->shard() == units.shard) owner_->Declare(key, layers[i], parts.back());
    }
    if (sender_) sender_->Declare(key, layers[i], std::move(parts));
  }
}

void Exchange::UsePlan(ModelId model, const plan::Plan& plan) {
  if (sender_) sender_->UsePlan(plan);
  if (!owner_) return;
  owner_->UsePlan(model, plan);
  for (std::uint32_t i = 0; i < plan.layers.size(); ++i) {
    if (plan.layers[i].scheme != scheme()) continue;
    owner_->Expect({model, LayerId(i)}, plan.cluster.RowsByContributor(plan.layers[i].measured.rows));
  }
}

void Exchange::Start(const wire::Key& key, sync::SyncRequest request) { sender_->Start(key, std::move(request)); }

messaging::FrameSink* Exchange::SinkOf(wire::FrameType type) {
  if (type == wire::FrameType::kFactor && owner_) return &owner_->inbox();
  if (type == wire::FrameType::kResult && sender_) return &*sender_;
  return nullptr;
}

void Exchange::AddWaits(std::vector<wire::Wait>* waits) const {
  if (owner_) owner_->AddWaits(waits);
  if (sender_) sender_->AddWaits(waits);
}

// The worker's side first: it still hears of its own part, whose product may be under way.
void Exchange::Abandon(const Status& reason) {
  if (sender_) sender_->Abandon(reason);
  if (owner_) owner_->Abandon(reason);
}

std::uint64_t Exchange::allocated_bytes() const {
  return (owner_ ? owner_->allocated_bytes() : 0) + (sender_ ? sender_->allocated_bytes() : 0);
}

}  // namespace poseidon::fsc
