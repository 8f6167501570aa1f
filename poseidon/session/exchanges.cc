// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/exchanges.h"

#include <memory>
#include <utility>

#include "poseidon/fsc/exchange.h"
#include "poseidon/kv/exchange.h"
#include "poseidon/local/host_exchange.h"
#include "poseidon/plan/scheme.h"
#include "poseidon/sfb/exchange.h"
#include "poseidon/sync/staged_exchange.h"

namespace poseidon::session {
namespace {

// On one host gradients are combined, and factors are not (plan::FactorsAreFlat).
sync::ExchangeEnvironment OfFactors(const sync::ExchangeEnvironment& env) {
  sync::ExchangeEnvironment own = env;
  if (env.among.is_one_host()) own.among = env.flat;
  return own;
}

}  // namespace

std::vector<std::unique_ptr<sync::Exchange>> MakeBareExchanges(const sync::ExchangeEnvironment& env) {
  std::vector<std::unique_ptr<sync::Exchange>> exchanges;
  const sync::ExchangeEnvironment of_factors = OfFactors(env);
  exchanges.push_back(std::make_unique<kv::Exchange>(env));
  exchanges.push_back(std::make_unique<sfb::Exchange>(of_factors));
  exchanges.push_back(std::make_unique<fsc::Exchange>(of_factors));
  return exchanges;
}

sync::Exchanges MakeExchanges(const sync::ExchangeEnvironment& env, const Lanes& lanes, local::HostLevel* level,
                              device::Device* device) {
  sync::Exchanges exchanges;
  const auto staging = std::make_shared<sync::StagingByLayer>();
  std::vector<std::unique_ptr<sync::Exchange>> schemes = MakeBareExchanges(env);
  for (std::unique_ptr<sync::Exchange>& exchange : schemes) {
    const bool combines = level != nullptr && !(plan::TakesFactors(exchange->scheme()) && env.among.is_one_host());
    if (lanes.count() > 1) {
      std::vector<sync::LanedExchange::Other> others = lanes.ExchangesOf(exchange->scheme());
      exchange = std::make_unique<sync::LanedExchange>(env.io, std::move(exchange), env.lane, std::move(others));
    }
    // Staging is outermost: what combines the workers of a host copies gradients and needs them in the host's memory.
    if (combines) {
      const local::HostExchange::Division division{
          .lanes = lanes.count(), .shards = env.among.shards(), .placement = env.strategy.placement};
      exchange = std::make_unique<local::HostExchange>(*level, std::move(exchange), division, env.fail);
    }
    if (device != nullptr && !device->host_accessible()) {
      exchange = std::make_unique<sync::StagedExchange>(env.io, std::move(exchange), *device, staging, env.trace);
    }
    exchanges.Add(std::move(exchange));
  }
  return exchanges;
}

}  // namespace poseidon::session
