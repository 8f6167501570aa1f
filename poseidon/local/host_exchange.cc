// SPDX-License-Identifier: Apache-2.0
#include "poseidon/local/host_exchange.h"

#include <optional>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::local {

HostExchange::HostExchange(HostLevel& level, std::unique_ptr<sync::Exchange> among_hosts)
    : WrappedExchange(std::move(among_hosts)), level_(level) {}

Share HostExchange::ShareOf(LayerId layer, const sync::SyncRequest& request) const {
  POSEIDON_CHECK(!plan::TakesFactors(scheme()) || request.absent || request.factors.has_value(),
                 "a factor layer is given its factors");
  return {.layer = layer,
          .step = request.step,
          .scheme = scheme(),
          .gradient = request.gradient,
          .factors = request.factors.value_or(Factors{}),
          .absent = request.absent,
          .weight = request.weight};
}

void HostExchange::Start(const wire::Key& key, sync::SyncRequest request) {
  // A host has nothing to sum of a table's rows, and the order of ranks would be lost where those of a host are not
  // consecutive (docs/decisions/table-rows.md).
  if (request.gathered != nullptr) return inner().Start(key, std::move(request));
  if (level_.leads()) return StartForHost(key, std::move(request));
  level_.FollowerOf(key.model)
      .Contribute(ShareOf(key.layer, request), request.plan_epoch, std::move(request.done));
}

void HostExchange::StartForHost(const wire::Key& key, sync::SyncRequest request) {
  const Share share = ShareOf(key.layer, request);
  // Shared, because whichever callback runs has to complete it, also where this exchange is gone.
  auto own = std::make_shared<sync::SyncRequest>(std::move(request));
  level_.LeaderOf(key.model).Combine(
      share, alive_.Guard([this, key, own](Result<Leader::Combined> combined) { ExchangeCombined(key, own, combined); },
                          [own](const Result<Leader::Combined>& combined) {
                            own->done(combined.ok() ? Unavailable("the exchange is gone") : combined.status());
                          }));
}

void HostExchange::ExchangeCombined(const wire::Key& key, const std::shared_ptr<sync::SyncRequest>& own,
                            const Result<Leader::Combined>& combined) {
  if (!combined.ok()) return own->done(combined.status());
  sync::SyncRequest all = Onward(*own);
  all.gradient = combined->gradient;
  all.factors = plan::TakesFactors(scheme()) ? std::optional(combined->factors) : std::nullopt;
  all.absent = combined->absent;
  all.weight = combined->weight;
  all.done = alive_.Guard(
      [this, key, own](const Status& status) {
        level_.LeaderOf(key.model).Spread(key.layer, status, std::move(own->done));
      },
      [own](const Status&) { own->done(Unavailable("the exchange is gone")); });
  inner().Start(key, std::move(all));
}

}  // namespace poseidon::local
