// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_PLAN_MODEL_H_
#define POSEIDON_PLAN_PLAN_MODEL_H_

#include <span>
#include <vector>

#include "poseidon/plan/cost_model.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"
#include "poseidon/plan/slices.h"

// What a finished plan predicts where something is other than it was planned for. Pure functions of a measured plan and the
// layers that it was made for.
namespace poseidon::plan {

// By declaration index.
std::vector<Scheme> SchemesOf(const Plan& plan);

// The plan's layers on `cluster`, which has the plan's workers and servers. `placement`: where the shards keep them.
StepModel ModelOf(const Plan& plan, std::span<const LayerSpec> layers, const ClusterSpec& cluster,
                  Placement placement = Placement::kEven);

// The least share of the network's rate, in (0, 1], at which the step is predicted to take as long as at the whole rate. With less
// some layer would land after the next forward pass has come to it. 1 where nothing was measured, and of more than
// kMostPlayedLayers layers.
double SufficientRate(const Plan& plan, std::span<const LayerSpec> layers);

// Bytes a second to which each worker is held, so that its transfers take the time that the step has for them and do not come in bursts:
// more than suffices, because steps are not all alike. 0: it is not held, since it would gain nothing, or since there are dedicated
// servers, to which connections carry more than to others. Why: docs/decisions/bytes-in-flight.md.
double SpreadRate(const Plan& plan, std::span<const LayerSpec> layers);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_PLAN_MODEL_H_
