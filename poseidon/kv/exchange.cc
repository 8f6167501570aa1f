// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/exchange.h"

#include <utility>

namespace poseidon::kv {

Exchange::Exchange(const sync::ExchangeEnvironment& env)
    : shards_(env.among.shards()), placement_(env.strategy.placement), lane_(env.lane) {
  if (env.among.self_shard()) {
    server_.emplace(env.io, env.mesh, env.among, env.trace, env.strategy);
    server_->OnDiffering(env.fail);
  }
  if (env.among.self_rank) client_.emplace(env.io, env.mesh, env.among, server_ ? &*server_ : nullptr, placement_);
}

void Exchange::Declare(ModelId model, std::span<const plan::LayerSpec> layers) {
  const std::vector<std::uint16_t> lane_of_layer = plan::DealToLanes(layers, lane_.lanes, divides_over());
  const auto slices = plan::SlicesOfLane(plan::AssignSlices(layers, shards_, placement_), lane_of_layer, lane_);
  if (server_) server_->Declare(model, layers, slices);
  if (client_) client_->Declare(model, slices);
}

// A tensor that is placed whole has one owner, which sums it when all of it is there: it is one lane's.
std::uint16_t Exchange::divides_over() const { return plan::DividesOver(placement_, shards_); }

void Exchange::UsePlan(ModelId model, const plan::Plan& plan) {
  if (server_) server_->UsePlan(model, plan);
}

void Exchange::Start(const Key& key, sync::SyncRequest request) { client_->PushPull(key, std::move(request)); }

void Exchange::Arrived(const Key& key, std::uint64_t elements) { client_->Arrived(key, elements); }

messaging::FrameSink* Exchange::SinkOf(wire::FrameType type) {
  if (type == wire::FrameType::kPush && server_) return &*server_;
  if (Client::Takes(type) && client_) return &*client_;
  return nullptr;
}

// Sums that are owed to this member show who is late only where its contributions are all there: they come last.
void Exchange::AddWaits(std::vector<wire::Wait>* waits) const {
  if (server_) server_->AddWaits(waits);
  if (client_) client_->AddWaits(waits);
}

void Exchange::Abandon(const Status& reason) {
  if (client_) client_->Abandon(reason);
  if (server_) server_->Abandon(reason);
}

std::uint64_t Exchange::allocated_bytes() const { return server_ ? server_->allocated_bytes() : 0; }
std::uint64_t Exchange::declared_bytes() const { return server_ ? server_->declared_bytes() : 0; }

}  // namespace poseidon::kv
