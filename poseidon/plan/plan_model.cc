// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/plan_model.h"

#include <algorithm>

#include "poseidon/plan/send_order.h"

namespace poseidon::plan {
namespace {

// A step that is longer by less takes as long.
constexpr double kAsLong = 1.0005;
constexpr double kRateStep = 1.0 / 512;
// A worker may send so many times what suffices, at least this share of the network's rate, and is not held where it may send nearly all.
constexpr double kRateToSpare = 1.75;
constexpr double kLeastShare = 0.1;
constexpr double kWorthSpreading = 0.75;

}  // namespace

std::vector<Scheme> SchemesOf(const Plan& plan) {
  std::vector<Scheme> schemes;
  for (const LayerPlan& layer : plan.layers) schemes.push_back(layer.scheme);
  return schemes;
}

StepModel ModelOf(const Plan& plan, std::span<const LayerSpec> layers, const ClusterSpec& cluster, Placement placement) {
  std::vector<LayerMeasurement> measured;
  for (const LayerPlan& layer : plan.layers) measured.push_back(layer.measured);
  // Slices do not depend on the plan (slices.h), so these are the ones that the planner counted.
  const auto shards = static_cast<std::uint16_t>(cluster.shards());
  return StepModel(layers, AssignSlices(layers, shards, placement), cluster, measured, /*waits_for_all=*/false, placement);
}

double SufficientRate(const Plan& plan, std::span<const LayerSpec> layers) {
  if (plan.compute_seconds <= 0 || layers.size() > kMostPlayedLayers) return 1;
  const StepModel model = ModelOf(plan, layers, plan.cluster);
  const std::vector<Scheme> schemes = SchemesOf(plan);
  std::vector<std::uint32_t> places;
  for (const std::size_t i : model.forward_order()) places.push_back(plan.layers[i].send_position);
  const auto step_at = [&](double rate) { return PlayedStepSeconds(model.Chain(schemes, {.network = rate}), places); };
  const double longest = kAsLong * step_at(1);
  // The step never shrinks where the rate does, so there is one border.
  double too_little = 0;
  double enough = 1;
  while (enough - too_little > kRateStep) {
    const double between = (too_little + enough) / 2;
    (step_at(between) <= longest ? enough : too_little) = between;
  }
  return enough;
}

double SpreadRate(const Plan& plan, std::span<const LayerSpec> layers) {
  if (plan.cluster.servers > 0 || plan.bytes_sent == 0) return 0;
  const double share = std::max(kLeastShare, kRateToSpare * SufficientRate(plan, layers));
  return share > kWorthSpreading ? 0 : share * plan.cluster.bandwidth;
}

}  // namespace poseidon::plan
