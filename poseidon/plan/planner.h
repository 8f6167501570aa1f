// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_PLANNER_H_
#define POSEIDON_PLAN_PLANNER_H_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "poseidon/base/result.h"
#include "poseidon/plan/cluster.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"
#include "poseidon/plan/slices.h"

namespace poseidon::plan {

struct PlanOptions {
  Policy policy = Policy::kTime;
  std::map<std::string, Scheme> forced = {};  // by layer name
  std::string forced_by = "the user";         // for the reason: "the user", "plan file lenet.json"
  // Per declared layer: all members computed the same bits in the test product. Empty: all did.
  // A layer whose products differ has no scheme in which every member multiplies, even where that is
  // forced, because replicas would drift apart.
  std::vector<bool> products_agree = {};
  // What other strategies have (sync/strategy.h).
  Placement placement = Placement::kEven;
  bool only_dense = false;     // no factors but where they are forced
  bool waits_for_all = false;  // the step that is predicted, and made least, is that of overlap in backward only
};

// Decides every layer's scheme from what was measured (one measurement per layer, in declaration
// order). Deterministic. Of plans whose JudgedSeconds (cost_model.h) differ by less than measurements can
// show (0.2 %) it takes the one with the simpler schemes. The caller sets epoch and switch_step.
// kInvalidArgument where an option names an unknown layer, or factors for a layer that has none
// (the message lists the layers that have), or where the measurements do not fit the layers.
Result<Plan> MakePlan(std::span<const LayerSpec> layers, const ClusterSpec& cluster,
                      std::span<const LayerMeasurement> measurements, const PlanOptions& options);

// The plan of the first steps, before anything was measured: key-value everywhere, unless forced.
Result<Plan> ProvisionalPlan(std::span<const LayerSpec> layers, const ClusterSpec& cluster,
                             const PlanOptions& options);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_PLANNER_H_
