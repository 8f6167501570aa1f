// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_LANED_EXCHANGE_H_
#define POSEIDON_SYNC_LANED_EXCHANGE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/base/executor.h"
#include "poseidon/sync/exchange.h"

namespace poseidon::sync {

// The exchanges of one scheme in all lanes of a member, as one. A layer's step begins in the lanes that carry it
// (plan/lanes.h) and is done when it is in all of them.
//
// Thread: the I/O executor, which is lane 0's. The exchanges of the other lanes are called on their own executors: a call
// that returns nothing is posted there and takes effect later, in the order of the calls.
// Lifetime: the exchanges of the other lanes outlive this and what it has posted.
class LanedExchange final : public Exchange {
 public:
  struct Other {
    Executor& executor;
    Exchange& exchange;
  };
  // `first` is lane 0's, whose share is `share`, `others` those of lanes 1 and up, which have the shares behind it.
  LanedExchange(Executor& io, std::unique_ptr<Exchange> first, plan::LaneShare share, std::vector<Other> others);

  plan::Scheme scheme() const override { return first_->scheme(); }
  void Declare(ModelId model, std::span<const plan::LayerSpec> layers) override;
  void UsePlan(ModelId model, const plan::Plan& plan) override;
  void Start(const wire::Key& key, SyncRequest request) override;
  bool takes_parts() const override { return first_->takes_parts(); }
  std::uint16_t divides_over() const override { return first_->divides_over(); }
  void Arrived(const wire::Key& key, std::uint64_t elements) override;
  // Lane 0's. The other lanes' frames come to their own meshes.
  messaging::FrameSink* SinkOf(wire::FrameType type) override { return first_->SinkOf(type); }
  // Of other lanes those that they had when this was called before: they are asked anew here, and answer later.
  void AddWaits(std::vector<wire::Wait>* waits) const override;
  void Abandon(const Status& reason) override;
  // Lane 0's. The other lanes are asked on their executors.
  std::uint64_t allocated_bytes() const override { return first_->allocated_bytes(); }
  std::uint64_t declared_bytes() const override { return first_->declared_bytes(); }

 private:
  // One step of one layer, in several lanes at once.
  struct Joint {
    std::size_t lanes = 0;  // that are not done
    Status failure;
    Completion done;
  };
  // Calls `f(exchange)` on the executor of every other lane.
  template <typename F>
  void PostToOthers(const F& f) const;
  void StartIn(std::uint16_t lane, const wire::Key& key, SyncRequest request);

  Executor& io_;
  const std::unique_ptr<Exchange> first_;
  const plan::LaneShare share_;
  const std::vector<Other> others_;
  std::map<ModelId, std::vector<std::uint16_t>> lane_of_layer_;  // among this member's; kEveryLane
  mutable std::vector<std::vector<wire::Wait>> waits_;  // of the other lanes, by the last answer
  Alive alive_;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_LANED_EXCHANGE_H_
