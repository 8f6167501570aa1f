// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_STRATEGY_H_
#define POSEIDON_SYNC_STRATEGY_H_

#include <string>
#include <string_view>
#include <vector>

#include "poseidon/base/result.h"
#include "poseidon/messaging/flow.h"
#include "poseidon/messaging/order.h"
#include "poseidon/plan/compression.h"
#include "poseidon/plan/planner.h"
#include "poseidon/plan/slices.h"

namespace poseidon::sync {

// How a job communicates, beside the scheme of each layer: which bytes leave first, where slices live, how many bytes
// are committed to a connection at a time, and whether factors leave without their zeros. The default is Poseidon's;
// other values are those of published systems, for comparisons on the same code (docs/strategies.md).
// All but zero_compression are the same on every member.
struct Strategy {
  std::string_view name = "poseidon";  // lives as long as the program
  messaging::Order order = messaging::Order::kNextForward;
  plan::Placement placement = plan::Placement::kEven;
  messaging::Flow flow = {};   // until the link has been measured, which then decides
  bool flow_is_fixed = false;  // `flow` holds all the time
  // The next forward pass begins when every layer has landed. The front end does the waiting.
  bool waits_for_all = false;
  bool only_dense = false;                      // factors are for layers alone on which the user forces them
  plan::Policy policy = plan::Policy::kTime;    // kBytes: by bytes, whatever the user's policy
  plan::ZeroCompression zero_compression = plan::ZeroCompression::kAuto;

  friend bool operator==(const Strategy&, const Strategy&) = default;
};

// The strategy of that name. kInvalidArgument, as in "strategy is 'ps', expected poseidon, wfbp, ...", where there is none.
Result<Strategy> StrategyNamed(std::string_view name);

// "poseidon", "wfbp" and so on.
std::vector<std::string> StrategyNames();

// The user's wishes for the plan, and what the strategy adds to them.
plan::PlanOptions PlanningUnder(const Strategy& strategy, plan::PlanOptions wishes);

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_STRATEGY_H_
