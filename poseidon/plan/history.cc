// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/history.h"

#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::plan {

History::History(std::size_t layers) {
  Entry unplanned{Step(0), std::vector<Choice>(layers)};
  for (std::size_t i = 0; i < layers; ++i) {
    unplanned.by_layer[i].send_position = static_cast<std::uint32_t>(i);
  }
  entries_.push_back(std::move(unplanned));
}

void History::Use(const Plan& plan) {
  POSEIDON_CHECK(plan.layers.size() == entries_.front().by_layer.size(),
                 "a plan is of the layers that were declared");
  Entry entry{plan.switch_step, {}};
  for (const LayerPlan& layer : plan.layers) {
    entry.by_layer.push_back({layer.scheme, layer.send_position});
  }
  // The newer plan counts for all steps from its own on, and `from` stays ascending for At.
  while (!entries_.empty() && entries_.back().from >= entry.from) entries_.pop_back();
  entries_.push_back(std::move(entry));
}

const History::Entry& History::At(Step step) const {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->from <= step) return *entry;
  }
  // Not reached: some entry holds from step 0, since Use removes that one only for another from step 0.
  return entries_.front();
}

}  // namespace poseidon::plan
