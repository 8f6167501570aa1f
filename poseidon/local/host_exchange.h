// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_HOST_EXCHANGE_H_
#define POSEIDON_LOCAL_HOST_EXCHANGE_H_

#include <memory>
#include <set>
#include <span>

#include "poseidon/base/alive.h"
#include "poseidon/local/host_level.h"
#include "poseidon/sync/wrapped_exchange.h"

namespace poseidon::local {

// An exchange among hosts: the workers of one host combine first. A follower brings its share to the
// leader; the leader exchanges what they bring together for all of them, and spreads the mean: of a layer whose product
// devices make, the factors of all hosts. Rows of tables are not summed and bypass this level. The level reports missing shares, once for all schemes.
//
// Thread: the I/O executor. Lifetime: the level outlives it.
class HostExchange final : public sync::WrappedExchange {
 public:
  HostExchange(HostLevel& level, std::unique_ptr<sync::Exchange> among_hosts);

  void Declare(ModelId model, std::span<const plan::LayerSpec> layers) override;
  void Start(const wire::Key& key, sync::SyncRequest request) override;

 private:
  Share ShareOf(LayerId layer, const sync::SyncRequest& request) const;
  void StartForHost(const wire::Key& key, sync::SyncRequest request);
  // `own` is the leader's own request, which is done when the mean has been spread.
  void ExchangeCombined(const wire::Key& key, const std::shared_ptr<sync::SyncRequest>& own,
                        const Result<sync::Contribution>& combined);

  HostLevel& level_;
  std::set<wire::Key> tables_;
  Alive alive_;
};

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_HOST_EXCHANGE_H_
