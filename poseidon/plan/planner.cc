// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/planner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "poseidon/base/listed.h"
#include "poseidon/plan/cost_model.h"
#include "poseidon/plan/payload.h"
#include "poseidon/plan/send_order.h"
#include "poseidon/plan/slices.h"
#include "poseidon/plan/units.h"

namespace poseidon::plan {
namespace {

// Two times are equal when they differ by less: measurements are no better than this, and of equally
// good plans the simpler one is taken.
constexpr double kRelativeTie = 2e-3;

constexpr const char* kRowsUnknown = "its rows are not known";

bool Shorter(double a, double b) { return a < b * (1 - kRelativeTie); }

std::uint64_t AllRows(const LayerMeasurement& measured) {
  return std::accumulate(measured.rows.begin(), measured.rows.end(), std::uint64_t{0});
}

std::string FactorLayerNames(std::span<const LayerSpec> layers) {
  std::string names;
  for (const LayerSpec& layer : layers) {
    if (layer.factors) AddListed(layer.name, &names);
  }
  return names.empty() ? "no layer has factors" : "layers with factors: " + names;
}

std::string AllNames(std::span<const LayerSpec> layers) {
  const std::string names = NamesOf(layers);
  return names.empty() ? "no layers are declared" : "declared layers: " + names;
}

Status CheckForced(std::span<const LayerSpec> layers, const PlanOptions& options) {
  std::string unknown;
  std::string without;
  std::string tables;
  for (const auto& [name, scheme] : options.forced) {
    const auto layer =
        std::find_if(layers.begin(), layers.end(),
                     [&, &wanted = name](const LayerSpec& l) { return l.name == wanted; });
    if (layer == layers.end()) {
      AddListed("'" + name + "'", &unknown);
    } else if (scheme == Scheme::kFactorBroadcast && !layer->factors) {
      AddListed("'" + name + "'", &without);
    } else if (scheme != Scheme::kFactorBroadcast && layer->is_table()) {
      AddListed("'" + name + "'", &tables);
    }
  }
  if (!unknown.empty()) {
    return InvalidArgument("a scheme is given for unknown layer " + unknown + "; " +
                           AllNames(layers));
  }
  if (!without.empty()) {
    return InvalidArgument("scheme sfb is given for layer " + without +
                           ", whose gradient is not a product of factors; " +
                           FactorLayerNames(layers));
  }
  if (!tables.empty()) {
    return InvalidArgument("scheme kv is given for layer " + tables +
                           ", a table whose rows always go to every worker, expected none or sfb");
  }
  return OkStatus();
}

// A rate or a duration that can be reckoned with.
bool IsQuantity(double value) { return std::isfinite(value) && value >= 0; }

Status Check(std::span<const LayerSpec> layers, const ClusterSpec& cluster,
             std::span<const LayerMeasurement> measurements, const PlanOptions& options) {
  POSEIDON_RETURN_IF_ERROR(Validate(layers));
  POSEIDON_RETURN_IF_ERROR(CheckForced(layers, options));
  if (cluster.workers < 1 || cluster.workers > 0xffff || cluster.servers > 0xffff) {
    return InvalidArgument("a plan for " + std::to_string(cluster.workers) + " workers and " +
                           std::to_string(cluster.servers) +
                           " servers was asked for, expected 1 to 65535 workers and at most as "
                           "many servers");
  }
  if (!AreHosts(cluster.host_of_rank, cluster.workers)) {
    return InvalidArgument("the hosts of the workers are not numbered by their lowest ranks");
  }
  struct Value {
    const char* name;
    double value;
    bool is_rate = false;
  };
  for (const auto& [name, value, is_rate] :
       {Value{"bandwidth", cluster.bandwidth, true}, Value{"latency", cluster.latency},
        Value{"rate of the rebuild product", cluster.rebuild_flops, true},
        Value{"rate of copies", cluster.copy_bytes_per_second, true},
        Value{"CPU time per byte", cluster.cpu_seconds_per_wire_byte},
        Value{"number of cores", cluster.cores_per_worker}}) {
    if (!IsQuantity(value)) {
      return InvalidArgument("the " + std::string(name) + " of the cluster is " +
                             std::to_string(value) + ", expected a finite number, 0 or more");
    }
    if (is_rate && value > 0 && value < 1) {  // what it carries would take longer than can be reckoned with
      return InvalidArgument("the " + std::string(name) +
                             " of the cluster is less than 1 per second, expected 0 (unknown) or more");
    }
  }
  if (measurements.size() != layers.size()) {
    return InvalidArgument("measurements of " + std::to_string(measurements.size()) +
                           " layers were given, expected " + std::to_string(layers.size()));
  }
  if (!options.products_agree.empty() && options.products_agree.size() != layers.size()) {
    return InvalidArgument("product tests of " + std::to_string(options.products_agree.size()) +
                           " layers were given, expected " + std::to_string(layers.size()));
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerMeasurement& measured = measurements[i];
    if (!measured.rows.empty() && measured.rows.size() != cluster.workers) {
      return InvalidArgument("layer '" + layers[i].name + "' has row counts of " +
                             std::to_string(measured.rows.size()) + " ranks, expected " +
                             std::to_string(cluster.workers));
    }
    if (!IsQuantity(measured.forward_seconds) || !IsQuantity(measured.backward_seconds)) {
      return InvalidArgument("layer '" + layers[i].name +
                             "' was measured to compute for no finite, positive time");
    }
  }
  return OkStatus();
}

// The published rule (Zhang et al., USENIX ATC 2017, section 3): factors where the busiest machine
// moves no more elements with them, both directions together. K rows of every worker there; of
// unequal workers the busiest counts. Long doubles hold these integers exactly as far as it
// matters.
struct PublishedRule {
  long double factor_elements = 0;
  long double slice_elements = 0;
  bool factors_win() const { return factor_elements <= slice_elements; }
};

PublishedRule ApplyPublishedRule(const FactorShape& shape, const ClusterSpec& cluster,
                                 const std::vector<std::uint32_t>& rows) {
  const auto workers = static_cast<long double>(cluster.contributors());
  const auto servers = static_cast<long double>(cluster.servers);
  const auto weights =
      static_cast<long double>(shape.outputs) * static_cast<long double>(shape.inputs);
  const auto all_rows =
      static_cast<long double>(std::accumulate(rows.begin(), rows.end(), std::uint64_t{0}));
  const auto most_rows = static_cast<long double>(*std::max_element(rows.begin(), rows.end()));
  const auto least_rows = static_cast<long double>(*std::min_element(rows.begin(), rows.end()));
  PublishedRule rule;
  rule.factor_elements =
      std::max(most_rows * (workers - 2) + all_rows, least_rows * (workers - 2) + all_rows) *
      static_cast<long double>(shape.elements_per_row());
  if (cluster.servers == 0) {
    rule.slice_elements = 2 * weights * (2 * workers - 2) / workers;
  } else if (cluster.servers_share_worker_hosts) {
    rule.slice_elements = 2 * weights * (workers + servers - 2) / servers;
  } else {
    rule.slice_elements = std::max(2 * weights, 2 * workers * weights / servers);
  }
  return rule;
}

// Chooses for all open layers together the schemes of least JudgedSeconds. A few layers:
// every choice is tried. More: two resources bind, computing (rebuilds) and the link, and if only
// their sums mattered, the best choice for some exchange rate between the two would be factors
// wherever the link time saved, at that rate, exceeds the computing added. So every such choice is
// tried, from the layer with the best ratio on, and judged by the whole chain; then the one layer
// that helps most is changed, as long as one does.
class TimeSearch {
 public:
  TimeSearch(const StepModel& model, std::vector<Scheme> fixed, std::vector<std::size_t> open)
      : model_(model), best_(std::move(fixed)), open_(std::move(open)) {
    for (const std::size_t i : open_) best_[i] = Scheme::kKeyValue;
    least_ = Judge(best_);
  }

  std::vector<Scheme> Run() {
    if (open_.size() <= kFewEnoughForAll) {
      TryAll();
    } else {
      TryByRatio();
      while (FlipOne()) {
      }
    }
    DropUseless();
    return best_;
  }

 private:
  struct Ratio {
    std::size_t layer;
    double saved_transfer;
    double added_compute;
  };

  double Judge(const std::vector<Scheme>& schemes) const {
    return JudgedSeconds(model_.Predict(schemes));
  }
  // Takes `schemes` over if they are better.
  bool Try(const std::vector<Scheme>& schemes) {
    if (!Shorter(JudgedSeconds(model_.Bound(schemes)), least_)) return false;
    const double seconds = Judge(schemes);
    if (!Shorter(seconds, least_)) return false;
    best_ = schemes;
    least_ = seconds;
    return true;
  }
  static Scheme Other(Scheme scheme) {
    return scheme == Scheme::kKeyValue ? Scheme::kFactorBroadcast : Scheme::kKeyValue;
  }

  void TryByRatio() {
    std::vector<Ratio> ratios;
    for (const std::size_t i : open_) {
      const LayerCost& dense = model_.cost(i, Scheme::kKeyValue);
      const LayerCost& factors = model_.cost(i, Scheme::kFactorBroadcast);
      const double saved = dense.transfer - factors.transfer;
      const double added = factors.backward + factors.rebuild - dense.backward;
      if (saved > 0) ratios.push_back({i, saved, added});
    }
    std::stable_sort(ratios.begin(), ratios.end(), [](const Ratio& a, const Ratio& b) {
      return a.added_compute * b.saved_transfer < b.added_compute * a.saved_transfer;
    });
    std::vector<Scheme> schemes = best_;
    for (const Ratio& ratio : ratios) {
      schemes[ratio.layer] = Scheme::kFactorBroadcast;
      Try(schemes);
    }
  }
  // Changes the one layer that helps most.
  bool FlipOne() {
    const std::vector<Scheme> from = best_;
    bool better = false;
    for (const std::size_t i : open_) {
      std::vector<Scheme> schemes = from;
      schemes[i] = Other(schemes[i]);
      better = Try(schemes) || better;
    }
    return better;
  }
  void TryAll() {
    std::vector<Scheme> schemes = best_;
    for (std::uint32_t choice = 1; choice < 1u << open_.size(); ++choice) {
      for (std::size_t k = 0; k < open_.size(); ++k) {
        schemes[open_[k]] = (choice >> k & 1) != 0 ? Scheme::kFactorBroadcast : Scheme::kKeyValue;
      }
      Try(schemes);
    }
  }
  // Back to slices wherever factors make nothing better, those that save least first.
  void DropUseless() {
    std::vector<std::size_t> chosen;
    for (const std::size_t i : open_) {
      if (best_[i] == Scheme::kFactorBroadcast) chosen.push_back(i);
    }
    const auto saved = [&](std::size_t i) {
      return model_.cost(i, Scheme::kKeyValue).transfer -
             model_.cost(i, Scheme::kFactorBroadcast).transfer;
    };
    std::stable_sort(chosen.begin(), chosen.end(),
                     [&](std::size_t a, std::size_t b) { return saved(a) < saved(b); });
    for (const std::size_t i : chosen) {
      std::vector<Scheme> schemes = best_;
      schemes[i] = Scheme::kKeyValue;
      if (!Shorter(least_, Judge(schemes))) best_ = schemes;
    }
  }

  static constexpr std::size_t kFewEnoughForAll = 10;
  const StepModel& model_;
  std::vector<Scheme> best_;
  double least_ = 0;
  const std::vector<std::size_t> open_;
};

// Writes the clause that stands in the plan's reason column.
class Reasons {
 public:
  Reasons(std::span<const LayerSpec> layers, const StepModel& model,
          std::span<const LayerMeasurement> measured, const PlanOptions& options)
      : layers_(layers), model_(model), measured_(measured), options_(options) {}

  std::string Forced(std::size_t i) const {
    std::string reason = "forced by " + options_.forced_by;
    if (layers_[i].factors && !measured_[i].rows.empty()) reason += ": " + Bytes(i);
    return reason;
  }
  std::string ByBytes(std::size_t i, const PublishedRule& rule) const {
    const bool factors = rule.factors_win();
    return std::string(factors ? "fewest bytes" : "factors would be more bytes") + " at " +
           std::to_string(AllRows(measured_[i])) + " rows: " + Bytes(i);
  }
  // `other_step`: the step if only this layer went the other way.
  std::string ByTime(std::size_t i, Scheme chosen, double step, double other_step) const {
    const LayerCost& factors = model_.cost(i, Scheme::kFactorBroadcast);
    const bool bytes_less = factors.transfer < model_.cost(i, Scheme::kKeyValue).transfer;
    const std::string numbers = Bytes(i) + ", rebuild " + SecondsText(factors.rebuild);
    const bool with_factors = chosen == Scheme::kFactorBroadcast;
    if (!with_factors && !Shorter(step, other_step) && !Shorter(other_step, step)) {
      return "factors would not shorten the step" +
             std::string(bytes_less ? " (its bytes hide behind computing): " : ": ") + numbers;
    }
    return "step " + SecondsText(step) + ", with " + (with_factors ? "slices " : "factors ") +
           SecondsText(other_step) +
           (Shorter(step, other_step) ? ": " : " but more bytes to hide: ") + numbers;
  }

 private:
  // What each scheme sends, as "slices 2.40 MB, factors 333 kB".
  std::string Bytes(std::size_t i) const {
    return "slices " + BytesText(model_.worker_bytes(i, Scheme::kKeyValue).sent) + ", factors " +
           BytesText(model_.worker_bytes(i, Scheme::kFactorBroadcast).sent);
  }

  std::span<const LayerSpec> layers_;
  const StepModel& model_;
  std::span<const LayerMeasurement> measured_;
  const PlanOptions& options_;
};

// The scheme of a layer that is not open to choice, and why; none if it is open.
struct Fixed {
  Scheme scheme = Scheme::kKeyValue;
  bool forced = false;
  std::string reason;  // empty where it is forced
};

std::optional<Fixed> FixedScheme(const LayerSpec& layer, std::size_t index,
                                 const ClusterSpec& cluster, const LayerMeasurement& measured,
                                 const PlanOptions& options) {
  if (layer.is_table()) {
    return Fixed{.scheme = Scheme::kFactorBroadcast, .reason = "the rows of a table go to every worker as they are"};
  }
  const auto forced = options.forced.find(layer.name);
  const bool wants_factors =
      forced != options.forced.end() && forced->second == Scheme::kFactorBroadcast;
  if (layer.factors && !options.products_agree.empty() && !options.products_agree[index] &&
      (wants_factors || forced == options.forced.end())) {
    return Fixed{.reason = std::string("the members' test products differ") +
                           (wants_factors ? ", although factors are forced" : "")};
  }
  if (forced != options.forced.end()) {
    return Fixed{.scheme = forced->second, .forced = true, .reason = {}};
  }
  if (!layer.factors) return Fixed{.reason = "its gradient is not a product of factors"};
  if (cluster.workers == 1) return Fixed{.reason = "one worker has nothing to broadcast"};
  // No rows at all, where its gradient came whole: what factors would take is not known then either.
  if (measured.rows.empty() || AllRows(measured) == 0) return Fixed{.reason = kRowsUnknown};
  return std::nullopt;
}

void SetSendOrder(const StepModel& model, const std::vector<Scheme>& schemes, Plan& plan) {
  const std::vector<std::uint32_t> places = SendOrder(model.Chain(schemes));
  for (std::size_t k = 0; k < places.size(); ++k) {
    LayerPlan& layer_plan = plan.layers[model.forward_order()[k]];
    layer_plan.send_position = places[k];
    if (places[k] < k) layer_plan.reason += "; leaves before what forward needs first";
  }
}

}  // namespace

Result<Plan> MakePlan(std::span<const LayerSpec> layers, const ClusterSpec& cluster,
                      std::span<const LayerMeasurement> measurements, const PlanOptions& options) {
  POSEIDON_RETURN_IF_ERROR(Check(layers, cluster, measurements, options));
  const auto slices = AssignSlices(layers, cluster.shards());
  const StepModel model(layers, slices, cluster, measurements);
  const Reasons reasons(layers, model, measurements, options);

  Plan plan;
  plan.policy = options.policy;
  plan.cluster = cluster;
  plan.layers.resize(layers.size());
  std::vector<Scheme> schemes(layers.size(), Scheme::kKeyValue);
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    LayerPlan& layer_plan = plan.layers[i];
    layer_plan.layer = LayerId(static_cast<std::uint32_t>(i));
    layer_plan.measured = measurements[i];
    if (const auto fixed = FixedScheme(layers[i], i, cluster, measurements[i], options)) {
      schemes[i] = fixed->scheme;
      layer_plan.forced = fixed->forced;
      layer_plan.reason = fixed->forced ? reasons.Forced(i) : fixed->reason;
    } else if (options.policy == Policy::kBytes) {
      const PublishedRule rule =
          ApplyPublishedRule(*layers[i].factors, cluster,
                             SumByHost(cluster.host_of_rank, measurements[i].rows));
      schemes[i] = rule.factors_win() ? Scheme::kFactorBroadcast : Scheme::kKeyValue;
      layer_plan.reason = reasons.ByBytes(i, rule);
    } else {
      open.push_back(i);
    }
  }
  if (!open.empty()) schemes = TimeSearch(model, std::move(schemes), open).Run();

  const StepPrediction prediction = model.Predict(schemes);
  for (const std::size_t i : open) {
    std::vector<Scheme> other = schemes;
    other[i] = schemes[i] == Scheme::kKeyValue ? Scheme::kFactorBroadcast : Scheme::kKeyValue;
    plan.layers[i].reason =
        reasons.ByTime(i, schemes[i], prediction.step, model.Predict(other).step);
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    LayerPlan& layer_plan = plan.layers[i];
    layer_plan.scheme = schemes[i];
    layer_plan.bytes_sent = model.worker_bytes(i, schemes[i]).sent;
    layer_plan.bytes_received = model.worker_bytes(i, schemes[i]).received;
    layer_plan.transfer_seconds = model.cost(i, schemes[i]).transfer;
    layer_plan.rebuild_seconds = model.cost(i, schemes[i]).rebuild;
  }
  SetSendOrder(model, schemes, plan);
  const std::vector<Scheme> dense(layers.size(), Scheme::kKeyValue);
  const StepPrediction dense_prediction = model.Predict(dense);
  plan.step_seconds = prediction.step;
  plan.compute_seconds = prediction.compute;
  plan.single_worker_seconds = model.single_worker_seconds();
  plan.speedup =
      prediction.step > 0 ? cluster.workers * plan.single_worker_seconds / prediction.step : 0;
  plan.wfbp_seconds = prediction.wait_free;
  plan.dense_step_seconds = dense_prediction.step;
  plan.bytes_sent = prediction.busiest_worker.sent;
  plan.dense_bytes_sent = dense_prediction.busiest_worker.sent;
  return plan;
}

Result<Plan> ProvisionalPlan(std::span<const LayerSpec> layers, const ClusterSpec& cluster,
                             const PlanOptions& options) {
  const std::vector<LayerMeasurement> nothing(layers.size());
  POSEIDON_ASSIGN_OR_RETURN(Plan plan, MakePlan(layers, cluster, nothing, options));
  for (LayerPlan& layer_plan : plan.layers) {
    if (layer_plan.reason == kRowsUnknown) {
      layer_plan.reason = "until the first steps have been measured";
    }
  }
  plan.step_seconds = 0;
  plan.compute_seconds = 0;
  plan.speedup = 0;
  plan.wfbp_seconds = 0;
  plan.dense_step_seconds = 0;
  return plan;
}

}  // namespace poseidon::plan
