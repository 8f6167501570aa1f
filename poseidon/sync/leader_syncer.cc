// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/leader_syncer.h"

#include <utility>

#include "poseidon/sync/local_share.h"

namespace poseidon::sync {

LeaderSyncer::LeaderSyncer(local::Leader& leader, std::unique_ptr<Syncer> among_hosts,
                           LayerId layer, plan::Scheme scheme)
    : leader_(leader),
      among_hosts_(std::move(among_hosts)),
      layer_(layer),
      scheme_(scheme),
      alive_(std::make_shared<LeaderSyncer*>(this)) {}

void LeaderSyncer::Start(SyncRequest request) {
  const local::Share share = ShareOf(request, layer_, scheme_);
  auto own = std::make_shared<SyncRequest>(std::move(request));
  leader_.Combine(share, [weak = std::weak_ptr<LeaderSyncer*>(alive_),
                          own](Result<local::Leader::Combined> combined) {
    const auto self = weak.lock();
    if (!combined.ok() || !self) {
      return own->done(combined.ok() ? Unavailable("the layer is gone") : combined.status());
    }
    SyncRequest all = {.step = own->step,
                       .plan_epoch = own->plan_epoch,
                       .priority = own->priority,
                       .gradient = combined->gradient,
                       .factors = std::nullopt,
                       .absent = combined->absent,
                       .weight = combined->weight,
                       .ready = nullptr,
                       .done = [weak, own](Status status) {
                         const auto alive = weak.lock();
                         if (!alive) return own->done(Unavailable("the layer is gone"));
                         (*alive)->leader_.Spread((*alive)->layer_, status, std::move(own->done));
                       }};
    if ((*self)->scheme_ == plan::Scheme::kFactorBroadcast) all.factors = combined->factors;
    (*self)->among_hosts_->Start(std::move(all));
  });
}

}  // namespace poseidon::sync
