// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_HOST_EXCHANGE_H_
#define POSEIDON_LOCAL_HOST_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/local/host_level.h"
#include "poseidon/sync/exchange.h"

namespace poseidon::local {

// An exchange among hosts: the workers of one host combine first. A follower brings its share to the
// leader; the leader exchanges what they bring together for all of them, and spreads the mean. Rows of
// tables are not summed, and go past this level.
//
// Thread: the I/O executor. Lifetime: the level outlives it.
class HostExchange final : public sync::Exchange {
 public:
  HostExchange(HostLevel& level, std::unique_ptr<sync::Exchange> among_hosts);

  plan::Scheme scheme() const override { return among_hosts_->scheme(); }
  void Declare(ModelId model, std::span<const plan::LayerSpec> layers) override;
  void UsePlan(ModelId model, const plan::Plan& plan) override { among_hosts_->UsePlan(model, plan); }
  void Start(const wire::Key& key, sync::SyncRequest request) override;
  messaging::FrameSink* SinkOf(wire::FrameType type) override { return among_hosts_->SinkOf(type); }
  // Shares that are lacking are the level's to name, once for all schemes.
  void AddWaits(std::vector<wire::Wait>* waits) const override { among_hosts_->AddWaits(waits); }
  void Abandon(const Status& reason) override { among_hosts_->Abandon(reason); }
  std::uint64_t allocated_bytes() const override { return among_hosts_->allocated_bytes(); }
  std::uint64_t declared_bytes() const override { return among_hosts_->declared_bytes(); }

 private:
  Share ShareOf(LayerId layer, const sync::SyncRequest& request) const;
  void StartForHost(const wire::Key& key, sync::SyncRequest request);
  // `own` is the leader's own request, which is done when the mean has been spread.
  void ExchangeCombined(const wire::Key& key, const std::shared_ptr<sync::SyncRequest>& own,
                        const Result<Leader::Combined>& combined);

  HostLevel& level_;
  const std::unique_ptr<sync::Exchange> among_hosts_;
  Alive alive_;
};

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_HOST_EXCHANGE_H_
