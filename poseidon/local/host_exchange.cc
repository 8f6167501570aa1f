// SPDX-License-Identifier: Apache-2.0
#include "poseidon/local/host_exchange.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "poseidon/base/check.h"
#include "poseidon/plan/lanes.h"

namespace poseidon::local {

HostExchange::HostExchange(HostLevel& level, std::unique_ptr<sync::Exchange> among_hosts, const Division& division,
                           std::function<void(const Status&)> fail)
    : WrappedExchange(std::move(among_hosts)), level_(level), division_(division), fail_(std::move(fail)) {}

void HostExchange::Declare(ModelId model, std::span<const plan::LayerSpec> layers) {
  const std::uint16_t leaders = level_.leaders();
  const auto lane_of_layer =
      plan::DealToLanes(layers, static_cast<std::uint16_t>(leaders * division_.lanes), inner().divides_over());
  const auto stretches =
      plan::StretchesOfLeaders(layers, plan::AssignSlices(layers, division_.shards, division_.placement), lane_of_layer,
                               leaders, division_.lanes);
  std::vector<bool> led(layers.size(), false);
  for (std::uint32_t i = 0; i < layers.size(); ++i) {
    if (layers[i].is_table()) continue;
    // By place: the leaders, and behind them those who lead nothing.
    auto parts = std::make_shared<Parts>(level_.workers());
    for (std::uint16_t leader = 0; leader < leaders; ++leader) {
      for (const plan::Stretch& stretch : stretches[i][leader]) {
        const std::uint64_t size = SizeOf(layers[i].dtype);
        (*parts)[leader].push_back({stretch.first * size, (stretch.first + stretch.count) * size});
      }
    }
    led[i] = !(*parts)[level_.place()].empty();
    parts_.insert_or_assign(wire::Key{model, LayerId(i)}, std::move(parts));
  }
  if (level_.leads()) level_.LeaderOf(model).Lead(scheme(), std::move(led));
  WrappedExchange::Declare(model, layers);
}

std::optional<sync::OwnMemory> HostExchange::MemoryOf(const wire::Key& key) const {
  // Not attached: it is alone on its host, or the job has failed before all were, and what is started then is refused.
  if (!parts_.contains(key)) return std::nullopt;
  const HostMemory& memory = level_.MemoryOf(key.model);
  return memory.attached() ? std::optional(memory.OwnOf(key.layer)) : std::nullopt;
}

void HostExchange::Start(const wire::Key& key, sync::SyncRequest request) {
  const auto found = parts_.find(key);
  // A host has nothing to sum of a table's rows, and the order of ranks would be lost where those of a host are not
  // consecutive (docs/decisions/table-rows.md).
  if (found == parts_.end()) return inner().Start(key, std::move(request));
  POSEIDON_CHECK(!plan::TakesFactors(scheme()) || request.absent || request.factors.has_value(),
                 "a factor layer is given its factors");
  const Parts& parts = *found->second;
  const bool leads = !parts[level_.place()].empty();
  const auto led = static_cast<std::size_t>(std::ranges::count_if(parts, [](const auto& part) { return !part.empty(); }));
  const bool follows = led > (leads ? 1u : 0u);
  const HostMemory& memory = level_.MemoryOf(key.model);
  const bool mean_stays = memory.attached() && request.gradient.memory == memory.SlotOf(key.layer, level_.place());
  const Share share{request, key.layer, scheme(), request.gathered, found->second, mean_stays};
  // Shared, because whichever callback runs last has to complete it, also where this exchange is gone.
  auto both = std::make_shared<Both>(Both{std::move(request), (leads ? 1 : 0) + (follows ? 1 : 0), OkStatus()});
  // First what others wait for.
  if (follows) {
    level_.FollowerOf(key.model).Contribute(
        share, alive_.Guard([this, both](const Status& status) { EndOne(*both, status); },
                            [both](const Status& status) { EndGone(*both, status); }));
  }
  if (leads) StartForHost(key, share, both);
}

// Where one part fails, the other may wait for leaders that have failed likewise and say nothing, so the job ends. The request is
// completed when both parts have ended: until then the other one may write to its memory.
void HostExchange::EndOne(Both& both, const Status& status) {
  EndGone(both, status);
  if (!status.ok() && both.left > 0) fail_(status);
}

void HostExchange::EndGone(Both& both, const Status& status) {
  if (both.failure.ok()) both.failure = status;
  if (--both.left == 0) std::exchange(both.own.done, {})(both.failure);
}

void HostExchange::StartForHost(const wire::Key& key, const Share& share, const std::shared_ptr<Both>& both) {
  level_.LeaderOf(key.model).Combine(
      share,
      alive_.Guard([this, key, both](const Result<sync::Contribution>& combined) { ExchangeCombined(key, both, combined); },
                   [both](const Result<sync::Contribution>& combined) {
                     EndGone(*both, combined.ok() ? Unavailable("the exchange is gone") : combined.status());
                   }));
}

void HostExchange::ExchangeCombined(const wire::Key& key, const std::shared_ptr<Both>& both,
                                    const Result<sync::Contribution>& combined) {
  if (!combined.ok()) return EndOne(*both, combined.status());
  Completion done = alive_.Guard(
      [this, key, both](const Status& status) {
        level_.LeaderOf(key.model).Spread(key.layer, status,
                                          alive_.Guard([this, both](const Status& spread) { EndOne(*both, spread); },
                                                       [both](const Status& spread) { EndGone(*both, spread); }));
      },
      [both](const Status&) { EndGone(*both, Unavailable("the exchange is gone")); });
  inner().Start(key, {*combined, both->own.priority, both->own.gathered, std::move(done)});
}

}  // namespace poseidon::local
