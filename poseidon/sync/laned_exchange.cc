// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/laned_exchange.h"

#include <utility>

#include "poseidon/plan/lanes.h"

namespace poseidon::sync {

LanedExchange::LanedExchange(Executor& io, std::unique_ptr<Exchange> first, plan::LaneShare share, std::vector<Other> others)
    : io_(io), first_(std::move(first)), share_(share), others_(std::move(others)), waits_(others_.size()) {}

template <typename F>
void LanedExchange::PostToOthers(const F& f) const {
  for (const Other& other : others_) {
    other.executor.Post([&exchange = other.exchange, f]() mutable { f(exchange); });
  }
}

void LanedExchange::Declare(ModelId model, std::span<const plan::LayerSpec> layers) {
  POSEIDON_ASSERT_ON(io_);
  const auto own = static_cast<std::uint16_t>(others_.size() + 1);
  std::vector<std::uint16_t> dealt = plan::DealToLanes(layers, share_.lanes, first_->divides_over());
  // Steps begin here of layers that this member leads, and of tables, which every worker exchanges: each has as many lanes.
  for (std::uint16_t& lane : dealt) {
    if (lane != plan::kEveryLane) lane = static_cast<std::uint16_t>(lane % own);
  }
  lane_of_layer_.insert_or_assign(model, std::move(dealt));
  first_->Declare(model, layers);
  PostToOthers([model, layers = std::vector(layers.begin(), layers.end())](Exchange& exchange) {
    exchange.Declare(model, layers);
  });
}

void LanedExchange::UsePlan(ModelId model, const plan::Plan& plan) {
  POSEIDON_ASSERT_ON(io_);
  first_->UsePlan(model, plan);
  PostToOthers([model, plan](Exchange& exchange) { exchange.UsePlan(model, plan); });
}

void LanedExchange::Start(const wire::Key& key, SyncRequest request) {
  POSEIDON_ASSERT_ON(io_);
  const std::uint16_t lane = lane_of_layer_.at(key.model).at(key.layer.value());
  if (lane != plan::kEveryLane) return StartIn(lane, key, std::move(request));
  auto joint = std::make_shared<Joint>(Joint{others_.size() + 1, OkStatus(), std::move(request.done)});
  for (std::uint16_t each = 0; each <= others_.size(); ++each) {
    SyncRequest part{static_cast<const Contribution&>(request), request.priority, request.gathered};
    part.done = [joint](const Status& status) {
      if (joint->failure.ok()) joint->failure = status;
      if (--joint->lanes == 0) std::exchange(joint->done, {})(joint->failure);
    };
    StartIn(each, key, std::move(part));
  }
}

void LanedExchange::StartIn(std::uint16_t lane, const wire::Key& key, SyncRequest request) {
  if (lane == 0) return first_->Start(key, std::move(request));
  const Other& other = others_[lane - 1];
  request.done = [&io = io_, done = std::move(request.done)](const Status& status) mutable {
    io.Post([done = std::move(done), status] { done(status); });
  };
  other.executor.Post([&exchange = other.exchange, key, request = std::move(request)]() mutable {
    exchange.Start(key, std::move(request));
  });
}

void LanedExchange::Arrived(const wire::Key& key, std::uint64_t elements) {
  POSEIDON_ASSERT_ON(io_);
  const std::uint16_t lane = lane_of_layer_.at(key.model).at(key.layer.value());
  if (lane == 0 || lane == plan::kEveryLane) first_->Arrived(key, elements);
  for (std::size_t i = 0; i < others_.size(); ++i) {
    if (lane != i + 1 && lane != plan::kEveryLane) continue;
    others_[i].executor.Post([&exchange = others_[i].exchange, key, elements] { exchange.Arrived(key, elements); });
  }
}

void LanedExchange::AddWaits(std::vector<wire::Wait>* waits) const {
  POSEIDON_ASSERT_ON(io_);
  first_->AddWaits(waits);
  for (std::size_t i = 0; i < others_.size(); ++i) {
    waits->insert(waits->end(), waits_[i].begin(), waits_[i].end());
    auto answer = alive_.Guard([this, i](std::vector<wire::Wait> now) { waits_[i] = std::move(now); });
    others_[i].executor.Post([&io = io_, &exchange = others_[i].exchange, answer = std::move(answer)]() mutable {
      std::vector<wire::Wait> now;
      exchange.AddWaits(&now);
      io.Post([answer = std::move(answer), now = std::move(now)]() mutable { answer(std::move(now)); });
    });
  }
}

void LanedExchange::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(io_);
  first_->Abandon(reason);
  PostToOthers([reason](Exchange& exchange) { exchange.Abandon(reason); });
}

}  // namespace poseidon::sync
