// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/replay/rules.h"

#include <algorithm>
#include <utility>

#include "poseidon/base/random.h"
#include "poseidon/coordinator/agreement.h"
#include "poseidon/plan/cost_model.h"
#include "poseidon/plan/payload.h"
#include "poseidon/plan/slices.h"

namespace poseidon::replay {
Result<Mode> ModeNamed(const std::string& name) {
  POSEIDON_ASSIGN_OR_RETURN(const sync::Strategy strategy, sync::StrategyNamed(name));
  Mode mode{.strategy = strategy, .pairs = strategy.placement == plan::Placement::kPairs};
  // Layers are cut into pairs of the profile's scale before they are declared (AsModeSeesIt).
  if (mode.pairs) mode.strategy.placement = plan::Placement::kWhole;
  return mode;
}

std::vector<Action> StepOf(const Mode& mode, std::size_t layers) {
  using Kind = Action::Kind;
  std::vector<Action> step;
  for (std::size_t i = 0; i < layers; ++i) {
    step.push_back({Kind::kAwait, i});
    step.push_back({Kind::kForward, i});
  }
  for (std::size_t i = layers; i-- > 0;) {
    step.push_back({Kind::kBackward, i});
    step.push_back({Kind::kPush, i});
  }
  if (mode.strategy.waits_for_all) {
    for (std::size_t i = 0; i < layers; ++i) step.push_back({Kind::kAwait, i});
  }
  return step;
}

Result<plan::PlanOptions> PlanningOf(const Wishes& wishes, const Mode& mode,
                                     const ScaledModel& model) {
  plan::PlanOptions planning;
  const std::string name = wishes.policy.empty() ? std::string(plan::NameOf(mode.strategy.policy)) : wishes.policy;
  const auto policy = plan::ParsePolicy(name);
  if (!policy) return InvalidArgument("policy '" + name + "' is unknown");
  if (mode.pairs && *policy == plan::Policy::kTime) {
    return InvalidArgument("mode " + std::string(mode.strategy.name) +
                           " chooses schemes by bytes, before there are times, expected policy bytes");
  }
  planning.policy = *policy;
  if (wishes.scheme.empty()) return planning;
  const auto scheme = plan::ParseScheme(wishes.scheme);
  if (!scheme) return InvalidArgument("scheme '" + wishes.scheme + "' is unknown, expected " + plan::SchemeNames());
  for (const ScaledLayer& layer : model.layers) {
    if (layer.spec.factors) planning.forced[layer.spec.name] = *scheme;
  }
  return planning;
}

Result<ScaledModel> AsModeSeesIt(const Wishes& wishes, const Mode& mode, ScaledModel model,
                                 std::uint16_t workers, double pair_elements) {
  if (!mode.pairs) return model;
  POSEIDON_ASSIGN_OR_RETURN(plan::PlanOptions planning, PlanningOf(wishes, mode, model));
  POSEIDON_ASSIGN_OR_RETURN(plan::Plan plan,
                            plan::MakePlan(model.specs(), {.workers = workers},
                                           model.measurements(workers), planning));
  std::vector<bool> whole;
  for (const plan::LayerPlan& layer : plan.layers) {
    whole.push_back(plan::TakesFactors(layer.scheme));
  }
  return CutIntoPairs(model, std::max<std::uint64_t>(1, static_cast<std::uint64_t>(pair_elements)),
                      whole);
}

double ComputeTimes::factor(std::uint16_t rank, std::uint64_t step, std::size_t layer,
                            int pass) const {
  double factor = rank + 1 == unevenness_.workers ? unevenness_.straggler : 1.0;
  if (unevenness_.jitter > 0) {
    Random random(
        Mix64(rank + 1000003 * (step + 1000003 * (layer * 2 + static_cast<std::size_t>(pass)))));
    // The sum of twelve uniform numbers has variance 1.
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random.Below(1u << 30)) / (1u << 30);
    factor *= std::max(0.2, 1 + unevenness_.jitter * sum);
  }
  return factor;
}

double ComputeTimes::forward(std::uint16_t rank, std::uint64_t step, std::size_t layer) const {
  return model_.layers[layer].forward_seconds * factor(rank, step, layer, 0);
}

double ComputeTimes::backward(std::uint16_t rank, std::uint64_t step, std::size_t layer,
                              bool factors) const {
  const ScaledLayer& one = model_.layers[layer];
  const double whole =
      factors ? std::max(0.0, one.backward_seconds - one.product_seconds) : one.backward_seconds;
  return whole * factor(rank, step, layer, 1);
}

wire::Measured ComputeTimes::MeasuredBy(std::uint16_t rank, const plan::Plan& under) const {
  constexpr std::uint64_t kSteps = 10;
  wire::Measured measured;
  for (std::size_t i = 0; i < model_.layers.size(); ++i) {
    const bool factors = plan::TakesFactors(under.layers[i].scheme);
    double forward_seconds = 0;
    double backward_seconds = 0;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      forward_seconds += forward(rank, step, i) / kSteps;
      backward_seconds += backward(rank, step, i, factors) / kSteps;
    }
    measured.layers.push_back({forward_seconds, backward_seconds, model_.layers[i].rows});
  }
  return measured;
}

std::vector<plan::LayerMeasurement> ComputeTimes::MeasuredBySlowest() const {
  plan::Plan before;  // all by keys
  before.layers.resize(model_.layers.size());
  std::vector<wire::Measured> by_rank;
  for (std::uint16_t rank = 0; rank < unevenness_.workers; ++rank) {
    by_rank.push_back(MeasuredBy(rank, before));
  }
  return coordinator::Combine(by_rank, model_.specs(), before);
}

std::vector<std::vector<plan::NodeBytes>> TrafficOf(const ScaledModel& model, const plan::Plan& plan,
                                                    std::uint16_t workers) {
  const std::vector<plan::LayerSpec> specs = model.specs();
  const auto slices = plan::AssignSlices(specs, plan.cluster.shards());
  const std::vector<plan::LayerMeasurement> measured = model.measurements(workers);
  std::vector<std::vector<plan::NodeBytes>> traffic(workers);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    plan::LayerPlan layer;
    layer.scheme = plan.layers[i].scheme;
    layer.measured = measured[i];
    const plan::LayerPayload payload = plan::PayloadOf(specs[i], slices[i], layer, plan.cluster);
    for (std::uint16_t rank = 0; rank < workers; ++rank) traffic[rank].push_back(payload.workers[rank]);
  }
  return traffic;
}

std::uint64_t SentOf(const std::vector<plan::NodeBytes>& layers) {
  std::uint64_t sum = 0;
  for (const plan::NodeBytes& layer : layers) sum += layer.sent;
  return sum;
}

Bounds BoundsOf(const ScaledModel& model, const ComputeTimes& times, const plan::Plan& plan,
                std::uint16_t workers, double bytes_per_second, std::uint64_t first,
                std::uint64_t steps) {
  plan::ClusterSpec cluster = plan.cluster;
  cluster.bandwidth = bytes_per_second;
  cluster.latency = 0;
  cluster.cpu_seconds_per_wire_byte = 0;
  cluster.copy_bytes_per_second = 0;
  cluster.rebuild_flops = model.product_flops;
  const std::vector<plan::LayerSpec> specs = model.specs();
  const auto slices = plan::AssignSlices(specs, cluster.shards());
  const plan::StepModel whole(specs, slices, cluster, model.measurements(workers));
  std::vector<plan::LayerCost> costs;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    costs.push_back(whole.cost(i, plan.layers[i].scheme));
  }
  const auto traffic = TrafficOf(model, plan, workers);
  Bounds sum;
  for (std::uint64_t step = first; step < first + steps; ++step) {
    Bounds slowest;
    for (std::uint16_t rank = 0; rank < workers; ++rank) {
      plan::NodeBytes own;
      std::uint64_t before = 0;
      for (std::size_t i = 0; i < specs.size(); ++i) {
        own = own + traffic[rank][i];
        const std::uint64_t bytes = std::max(own.sent, own.received);
        costs[i].transfer = static_cast<double>(bytes - std::exchange(before, bytes)) / bytes_per_second;
        const bool factors = plan::TakesFactors(plan.layers[i].scheme);
        costs[i].forward = times.forward(rank, step, i);
        costs[i].backward = times.backward(rank, step, i, factors);
      }
      slowest.least = std::max(slowest.least, plan::LeastStepSeconds(costs));
      slowest.wait_free = std::max(slowest.wait_free, plan::WaitFreeStepSeconds(costs));
    }
    sum.least += slowest.least / static_cast<double>(steps);
    sum.wait_free += slowest.wait_free / static_cast<double>(steps);
  }
  return sum;
}

}  // namespace poseidon::replay
