// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/strategy.h"

#include <array>
#include <utility>

#include "poseidon/base/listed.h"
#include "poseidon/wire/frame.h"

namespace poseidon::sync {
namespace {

using messaging::Order;

// Wait-free backpropagation (ATC 2017), P3 (MLSys 2019) and DeAR (ICDCS 2023) are orders, and the first of them waits for
// all layers. The system of 2017 also keeps key-value pairs at servers in turn, sends large frames, leaves the buffers as
// they are, and chooses schemes by bytes, before anything was measured.
constexpr std::array kStrategies = {
    Strategy{},
    Strategy{.name = "wfbp", .order = Order::kArrival, .waits_for_all = true},
    Strategy{.name = "p3", .order = Order::kLayer},
    Strategy{.name = "dear", .order = Order::kTwoPhase},
    Strategy{.name = "ps-2017",
             .order = Order::kArrival,
             .placement = plan::Placement::kPairs,
             .flow = {.chunk_bytes = wire::kMaxPayload, .write_bytes = wire::kMaxPayload},
             .flow_is_fixed = true,
             .waits_for_all = true,
             .policy = plan::Policy::kBytes},
    Strategy{.name = "dense", .only_dense = true},
};

}  // namespace

Result<Strategy> StrategyNamed(std::string_view name) {
  for (const Strategy& strategy : kStrategies) {
    if (strategy.name == name) return strategy;
  }
  std::string names;
  for (const Strategy& strategy : kStrategies) AddListed(std::string(strategy.name), &names);
  return InvalidArgument("strategy is '" + std::string(name) + "', expected one of " + names);
}

std::vector<std::string> StrategyNames() {
  std::vector<std::string> names;
  for (const Strategy& strategy : kStrategies) names.emplace_back(strategy.name);
  return names;
}

plan::PlanOptions PlanningUnder(const Strategy& strategy, plan::PlanOptions wishes) {
  if (strategy.policy == plan::Policy::kBytes) wishes.policy = plan::Policy::kBytes;
  wishes.placement = strategy.placement;
  wishes.only_dense = strategy.only_dense;
  wishes.waits_for_all = strategy.waits_for_all;
  return wishes;
}

}  // namespace poseidon::sync
