// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sfb/exchange.h"

#include <utility>

#include "poseidon/plan/hosts.h"

namespace poseidon::sfb {

Exchange::Exchange(const sync::ExchangeEnvironment& env)
    : router_([this](const wire::FrameHeader& header) -> messaging::FrameSink* {
        Broadcaster* const broadcaster = Of(header.key());
        return broadcaster == nullptr ? nullptr : &broadcaster->inbox();
      }) {
  // A worker for which others of its host speak has no rank among those who exchange layers, but one in `flat`.
  if (env.among.self_rank && env.engine != nullptr) {
    layers_.emplace(env, env.among, env.engine);
  }
  if (env.flat.self_rank) tables_.emplace(env, env.flat, nullptr);
}

Broadcaster* Exchange::Of(const wire::Key& key) {
  if (tables_ && tables_->declared(key)) return &*tables_;
  return layers_ ? &*layers_ : nullptr;
}

void Exchange::Declare(ModelId model, std::span<const plan::LayerSpec> layers) {
  for (std::uint32_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].factors) continue;
    std::optional<Broadcaster>& broadcaster = layers[i].is_table() ? tables_ : layers_;
    if (broadcaster) broadcaster->Declare({model, LayerId(i)}, layers[i]);
  }
}

void Exchange::UsePlan(ModelId model, const plan::Plan& plan) {
  if (layers_) layers_->UsePlan(plan);
  if (tables_) tables_->UsePlan(plan);
  for (std::uint32_t i = 0; i < plan.layers.size(); ++i) {
    if (plan.layers[i].scheme != scheme()) continue;
    const wire::Key key{model, LayerId(i)};
    const bool table = tables_ && tables_->declared(key);
    if (!table && !layers_) continue;
    std::vector<std::uint32_t> rows = plan.layers[i].measured.rows;
    // The ranks of layers may be hosts, which bring the rows of all their workers; those of tables are workers.
    if (!table) rows = plan.cluster.RowsByContributor(rows);
    Of(key)->Expect(key, rows);
  }
}

void Exchange::Start(const wire::Key& key, sync::SyncRequest request) {
  Of(key)->Broadcast(key, std::move(request));
}

messaging::FrameSink* Exchange::SinkOf(wire::FrameType type) {
  // `tables_` exists in every worker. Where only layers_ is missing, the router refuses its frames with a reason.
  return type == wire::FrameType::kFactor && tables_ ? &router_ : nullptr;
}

void Exchange::AddWaits(std::vector<wire::Wait>* waits) const {
  if (layers_) layers_->AddWaits(waits);
  if (tables_) tables_->AddWaits(waits);
}

void Exchange::Abandon(const Status& reason) {
  if (layers_) layers_->Abandon(reason);
  if (tables_) tables_->Abandon(reason);
}

std::uint64_t Exchange::allocated_bytes() const {
  return (layers_ ? layers_->allocated_bytes() : 0) + (tables_ ? tables_->allocated_bytes() : 0);
}

}  // namespace poseidon::sfb
