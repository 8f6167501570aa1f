// SPDX-License-Identifier: Apache-2.0
#include "poseidon/local/host_exchange.h"

#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::local {

HostExchange::HostExchange(HostLevel& level, std::unique_ptr<sync::Exchange> among_hosts)
    : WrappedExchange(std::move(among_hosts)), level_(level) {}

Share HostExchange::ShareOf(LayerId layer, const sync::SyncRequest& request) const {
  POSEIDON_CHECK(!plan::TakesFactors(scheme()) || request.absent || request.factors.has_value(),
                 "a factor layer is given its factors");
  return {request, layer, scheme(), request.gathered};
}

void HostExchange::Declare(ModelId model, std::span<const plan::LayerSpec> layers) {
  for (std::uint32_t i = 0; i < layers.size(); ++i) {
    if (layers[i].is_table()) tables_.insert({model, LayerId(i)});
  }
  WrappedExchange::Declare(model, layers);
}

void HostExchange::Start(const wire::Key& key, sync::SyncRequest request) {
  // A host has nothing to sum of a table's rows, and the order of ranks would be lost where those of a host are not
  // consecutive (docs/decisions/table-rows.md).
  if (tables_.contains(key)) return inner().Start(key, std::move(request));
  if (level_.leads()) return StartForHost(key, std::move(request));
  level_.FollowerOf(key.model).Contribute(ShareOf(key.layer, request), std::move(request.done));
}

void HostExchange::StartForHost(const wire::Key& key, sync::SyncRequest request) {
  const Share share = ShareOf(key.layer, request);
  // Shared, because whichever callback runs has to complete it, also where this exchange is gone.
  auto own = std::make_shared<sync::SyncRequest>(std::move(request));
  level_.LeaderOf(key.model).Combine(
      share,
      alive_.Guard([this, key, own](Result<sync::Contribution> combined) { ExchangeCombined(key, own, combined); },
                   [own](const Result<sync::Contribution>& combined) {
                     own->done(combined.ok() ? Unavailable("the exchange is gone") : combined.status());
                   }));
}

void HostExchange::ExchangeCombined(const wire::Key& key, const std::shared_ptr<sync::SyncRequest>& own,
                                    const Result<sync::Contribution>& combined) {
  if (!combined.ok()) return own->done(combined.status());
  Completion done = alive_.Guard(
      [this, key, own](const Status& status) {
        level_.LeaderOf(key.model).Spread(key.layer, status, std::move(own->done));
      },
      [own](const Status&) { own->done(Unavailable("the exchange is gone")); });
  inner().Start(key, {*combined, own->priority, own->gathered, std::move(done)});
}

}  // namespace poseidon::local
