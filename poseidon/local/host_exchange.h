// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_HOST_EXCHANGE_H_
#define POSEIDON_LOCAL_HOST_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "poseidon/base/alive.h"
#include "poseidon/local/host_level.h"
#include "poseidon/plan/slices.h"
#include "poseidon/sync/wrapped_exchange.h"

namespace poseidon::local {

// An exchange among hosts: the workers of one host combine first. Each brings its share to the leaders of the host; a
// leader exchanges what they bring together of its part (plan/lanes.h), and spreads the mean: of a layer whose product
// devices make, the factors of all hosts. Rows of tables are not summed and bypass this level. The level reports missing
// shares, once for all schemes.
//
// Thread: the I/O executor. Lifetime: the level outlives it.
class HostExchange final : public sync::WrappedExchange {
 public:
  // How layers are divided among leaders.
  struct Division {
    std::uint16_t lanes = 1;  // of each
    std::uint16_t shards = 1;
    plan::Placement placement = plan::Placement::kEven;
  };
  // `fail` ends the job (sync::ExchangeEnvironment::fail).
  HostExchange(HostLevel& level, std::unique_ptr<sync::Exchange> among_hosts, const Division& division,
               std::function<void(const Status&)> fail);

  void Declare(ModelId model, std::span<const plan::LayerSpec> layers) override;
  // The worker's slot and the mean, where it has company.
  std::optional<sync::OwnMemory> MemoryOf(const wire::Key& key) const override;
  void Start(const wire::Key& key, sync::SyncRequest request) override;

 private:
  // One step of one layer: the part that this worker leads, and the parts of others.
  struct Both {
    sync::SyncRequest own;
    int left = 0;
    Status failure;
  };
  void EndOne(Both& both, const Status& status);
  static void EndGone(Both& both, const Status& status);
  void StartForHost(const wire::Key& key, const Share& share, const std::shared_ptr<Both>& both);
  void ExchangeCombined(const wire::Key& key, const std::shared_ptr<Both>& both, const Result<sync::Contribution>& combined);

  HostLevel& level_;
  const Division division_;
  const std::function<void(const Status&)> fail_;
  std::map<wire::Key, std::shared_ptr<const Parts>> parts_;  // of every layer but tables
  Alive alive_;
};

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_HOST_EXCHANGE_H_
