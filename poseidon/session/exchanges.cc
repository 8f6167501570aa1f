// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/exchanges.h"

#include <memory>
#include <utility>

#include "poseidon/fsc/exchange.h"
#include "poseidon/kv/exchange.h"
#include "poseidon/local/host_exchange.h"
#include "poseidon/sfb/exchange.h"
#include "poseidon/sync/staged_exchange.h"

namespace poseidon::session {

sync::Exchanges MakeExchanges(const sync::ExchangeEnvironment& env, local::HostLevel* level, device::Device* device) {
  std::unique_ptr<sync::Exchange> schemes[] = {
      std::make_unique<kv::Exchange>(env),
      std::make_unique<sfb::Exchange>(env),
      std::make_unique<fsc::Exchange>(env),
  };
  sync::Exchanges exchanges;
  for (std::unique_ptr<sync::Exchange>& exchange : schemes) {
    // Staging is outermost: what combines the workers of a host copies gradients and needs them in the host's memory.
    if (level != nullptr) exchange = std::make_unique<local::HostExchange>(*level, std::move(exchange));
    if (device != nullptr && !device->host_accessible()) {
      exchange = std::make_unique<sync::StagedExchange>(env.io, std::move(exchange), *device);
    }
    exchanges.Add(std::move(exchange));
  }
  return exchanges;
}

}  // namespace poseidon::session
