// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/planner.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "poseidon/base/listed.h"
#include "poseidon/plan/cost_model.h"
#include "poseidon/plan/payload.h"
#include "poseidon/plan/schemes.h"
#include "poseidon/plan/send_order.h"
#include "poseidon/plan/slices.h"
#include "poseidon/plan/units.h"

namespace poseidon::plan {
namespace {

// Two times are equal when they differ by less: measurements are no better than this, and of equally
// good plans the simpler one is taken.
constexpr double kRelativeTie = 2e-3;

constexpr const char* kRowsUnknown = "its rows are not known";
constexpr const char* kProductsDiffer = "the members' test products differ";
constexpr const char* kOnlyDense = "the strategy sends no factors";

// The schemes among which the published rule (below) chooses. Policy::kBytes follows that rule.
constexpr Scheme kPublished[] = {Scheme::kKeyValue, Scheme::kFactorBroadcast};

bool Shorter(double a, double b) { return a < b * (1 - kRelativeTie); }

std::uint64_t AllRows(const LayerMeasurement& measured) {
  return std::accumulate(measured.rows.begin(), measured.rows.end(), std::uint64_t{0});
}

// The layers that a scheme of factors applies to.
std::string FactorLayerNames(std::span<const LayerSpec> layers, const SchemeRow& row) {
  std::string names;
  for (const LayerSpec& layer : layers) {
    if (row.applies(layer)) AddListed(layer.name, &names);
  }
  return names.empty() ? "no layer has factors" : "layers with factors: " + names;
}

std::string AllNames(std::span<const LayerSpec> layers) {
  const std::string names = NamesOf(layers);
  return names.empty() ? "no layers are declared" : "declared layers: " + names;
}

const LayerSpec* Find(std::span<const LayerSpec> layers, const std::string& name) {
  for (const LayerSpec& layer : layers) {
    if (layer.name == name) return &layer;
  }
  return nullptr;
}

// That `row`'s scheme applies to the layers it is forced on, all of which are declared.
Status CheckForced(std::span<const LayerSpec> layers, const PlanOptions& options, const SchemeRow& row) {
  std::string without;
  std::string tables;
  const LayerSpec* table = nullptr;
  for (const auto& [name, scheme] : options.forced) {
    const LayerSpec* const layer = Find(layers, name);
    if (scheme != row.scheme || row.applies(*layer)) continue;
    AddListed("'" + name + "'", layer->is_table() ? &tables : &without);
    if (layer->is_table()) table = layer;
  }
  const std::string given = "scheme " + std::string(row.name) + " is given for layer ";
  if (!without.empty()) {
    return InvalidArgument(given + without + ", whose gradient is not a product of factors; " +
                           FactorLayerNames(layers, row));
  }
  if (table != nullptr) {
    return InvalidArgument(given + tables +
                           ", a table whose rows always go to every worker, expected none or " +
                           SchemeNamesFor(*table));
  }
  return OkStatus();
}

Status CheckForced(std::span<const LayerSpec> layers, const PlanOptions& options) {
  std::string unknown;
  for (const auto& [name, scheme] : options.forced) {
    if (Find(layers, name) == nullptr) AddListed("'" + name + "'", &unknown);
  }
  if (!unknown.empty()) {
    return InvalidArgument("a scheme is given for unknown layer " + unknown + "; " +
                           AllNames(layers));
  }
  for (const SchemeRow& row : Schemes()) POSEIDON_RETURN_IF_ERROR(CheckForced(layers, options, row));
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
  const auto workers = static_cast<long double>(cluster.factor_contributors());
  const auto servers = static_cast<long double>(cluster.servers);
  const auto weights =
      static_cast<long double>(shape.outputs) * static_cast<long double>(shape.inputs);
  const auto all_rows =
      static_cast<long double>(std::accumulate(rows.begin(), rows.end(), std::uint64_t{0}));
  const auto most_rows = static_cast<long double>(*std::max_element(rows.begin(), rows.end()));
  const auto least_rows = static_cast<long double>(*std::min_element(rows.begin(), rows.end()));
  // Rank i sends r_i (P - 1) rows and receives the other ranks' rows: r_i (P - 2) + all rows, for equal workers
  // 2 K (P - 1). With slices a machine that has a worker and a server moves 2 M N (P + S - 2) / S, and S is P where
  // every worker hosts a shard. On machines of their own a worker moves 2 M N and a server 2 P M N / S.
  PublishedRule rule;
  rule.factor_elements =
      std::max(most_rows * (workers - 2) + all_rows, least_rows * (workers - 2) + all_rows) *
      static_cast<long double>(shape.elements_per_row());
  if (cluster.servers == 0 && cluster.contributors() == 1) {
    rule.slice_elements = 0;  // on one host nothing leaves
  } else if (cluster.servers == 0) {
    rule.slice_elements = 2 * weights * (2 * workers - 2) / workers;
  } else if (cluster.servers_share_worker_hosts) {
    rule.slice_elements = 2 * weights * (workers + servers - 2) / servers;
  } else {
    rule.slice_elements = std::max(2 * weights, 2 * workers * weights / servers);
  }
  return rule;
}

// A layer whose scheme the planner chooses.
struct Open {
  std::size_t layer = 0;
  std::vector<Scheme> schemes;  // that it may have, the simplest first
  bool products_agree = true;   // of the members, in the test product
};

// Chooses the schemes of least JudgedSeconds for all open layers together. Where there are few
// combinations, it tries all of them. Otherwise it starts from the simplest schemes and changes layers in
// the order of computing added per second of link time saved, least first; it tries the plan after each
// change. The reason: two resources bind, computing (rebuilds) and the link. If only their sums mattered,
// the best plan would be one of these, namely all changes that cost less than some exchange rate between
// the two. But each plan is judged by its whole step, so the search then changes the one layer, or the
// two, that help most, as long as a change helps.
class TimeSearch {
 public:
  TimeSearch(const StepModel& model, std::vector<Scheme> fixed, const std::vector<Open>& open)
      : model_(model), best_(std::move(fixed)), open_(open) {
    for (const Open& one : open_) best_[one.layer] = one.schemes.front();
    least_ = Judge(best_);
  }

  std::vector<Scheme> Run() {
    if (FewEnoughForAll()) {
      TryAll();
    } else {
      TryByRatio();
      // This ends because every change shortens the judged time by kRelativeTie at least (Try).
      while (ChangeOne() || ChangeTwo()) {
      }
    }
    DropUseless();
    return best_;
  }

 private:
  // From the scheme of the layer's change before, or its simplest scheme.
  struct Change {
    std::size_t layer;
    Scheme to;
    double saved_transfer;
    double added_compute;
    bool cheaper_than(const Change& other) const {
      return added_compute * other.saved_transfer < other.added_compute * saved_transfer;
    }
  };

  double Judge(const std::vector<Scheme>& schemes) const {
    return JudgedSeconds(model_.Predict(schemes));
  }
  // Takes `schemes` over if they are better.
  bool Try(const std::vector<Scheme>& schemes) {
    // The bound never exceeds the prediction and plays no step, so most plans are ruled out cheaply.
    if (!Shorter(JudgedSeconds(model_.Bound(schemes)), least_)) return false;
    const double seconds = Judge(schemes);
    if (!Shorter(seconds, least_)) return false;
    best_ = schemes;
    least_ = seconds;
    return true;
  }
  double SavedTransfer(std::size_t layer, Scheme from, Scheme to) const {
    return model_.cost(layer, from).transfer - model_.cost(layer, to).transfer;
  }
  double AddedCompute(std::size_t layer, Scheme from, Scheme to) const {
    const LayerCost& before = model_.cost(layer, from);
    const LayerCost& after = model_.cost(layer, to);
    return after.backward + after.rebuild - before.backward - before.rebuild;
  }

  // Returns the changes of one layer, each from the scheme before: of the schemes that save link time the
  // one that adds the least computing per second saved comes next.
  std::vector<Change> ChangesOf(const Open& one) const {
    std::vector<Change> changes;
    for (Scheme at = one.schemes.front();;) {
      std::optional<Change> next;
      for (const Scheme to : one.schemes) {
        const Change change{one.layer, to, SavedTransfer(one.layer, at, to), AddedCompute(one.layer, at, to)};
        if (change.saved_transfer > 0 && (!next || change.cheaper_than(*next))) next = change;
      }
      if (!next) return changes;
      changes.push_back(*next);
      at = next->to;
    }
  }
  void TryByRatio() {
    std::vector<Change> changes;
    for (const Open& one : open_) {
      const std::vector<Change> of_layer = ChangesOf(one);
      changes.insert(changes.end(), of_layer.begin(), of_layer.end());
    }
    // The changes of one layer stay in their order: each has the least ratio from where it begins, so the ratios of
    // later ones are not less.
    std::stable_sort(changes.begin(), changes.end(),
                     [](const Change& a, const Change& b) { return a.cheaper_than(b); });
    std::vector<Scheme> schemes = best_;
    for (const Change& change : changes) {
      schemes[change.layer] = change.to;
      Try(schemes);
    }
  }
  // Changes the one layer that helps most.
  bool ChangeOne() {
    const std::vector<Scheme> from = best_;
    bool better = false;
    for (const Open& one : open_) {
      std::vector<Scheme> schemes = from;
      for (const Scheme to : one.schemes) {
        if (to == from[one.layer]) continue;
        schemes[one.layer] = to;
        better = Try(schemes) || better;
      }
    }
    return better;
  }
  // Where no single change helps, one may pay for another: a layer gives up link time that two others need.
  bool ChangeTwo() {
    if (open_.size() > kMostPaired) return false;
    const std::vector<Scheme> from = best_;
    bool better = false;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      for (std::size_t k = i + 1; k < open_.size(); ++k) {
        std::vector<Scheme> schemes = from;
        for (const Scheme first : open_[i].schemes) {
          for (const Scheme second : open_[k].schemes) {
            if (first == from[open_[i].layer] || second == from[open_[k].layer]) continue;
            schemes[open_[i].layer] = first;
            schemes[open_[k].layer] = second;
            better = Try(schemes) || better;
          }
        }
      }
    }
    return better;
  }
  bool FewEnoughForAll() const {
    std::size_t combinations = 1;
    for (const Open& one : open_) {
      combinations *= one.schemes.size();
      if (combinations > kMostTried) return false;
    }
    return true;
  }
  // Counts through all combinations, the first layer's scheme changing fastest.
  void TryAll() {
    std::vector<Scheme> schemes = best_;
    std::vector<std::size_t> chosen(open_.size(), 0);
    for (std::size_t k = 0; k < open_.size();) {
      chosen[k] = (chosen[k] + 1) % open_[k].schemes.size();
      schemes[open_[k].layer] = open_[k].schemes[chosen[k]];
      if (chosen[k] == 0) {
        ++k;  // carries
        continue;
      }
      Try(schemes);
      k = 0;
    }
  }
  // Gives each layer back the simplest scheme with which the plan is no worse, layers that save the least
  // link time first.
  void DropUseless() {
    std::vector<const Open*> changed;
    for (const Open& one : open_) {
      if (best_[one.layer] != one.schemes.front()) changed.push_back(&one);
    }
    const auto saved = [&, chosen = best_](const Open* one) {
      return SavedTransfer(one->layer, one->schemes.front(), chosen[one->layer]);
    };
    std::stable_sort(changed.begin(), changed.end(),
                     [&](const Open* a, const Open* b) { return saved(a) < saved(b); });
    for (const Open* const one : changed) {
      std::vector<Scheme> schemes = best_;
      for (const Scheme simpler : one->schemes) {
        if (simpler == best_[one->layer]) break;
        schemes[one->layer] = simpler;
        // `least_` is not raised, so what several layers lose within the tie cannot add up beyond one tie.
        if (Shorter(least_, Judge(schemes))) continue;
        best_ = schemes;
        break;
      }
    }
  }

  static constexpr std::size_t kMostTried = 1024;
  static constexpr std::size_t kMostPaired = 32;  // open layers: pairs of changes grow with their square
  const StepModel& model_;
  std::vector<Scheme> best_;
  double least_ = 0;
  const std::vector<Open>& open_;
};

// Writes the plan's reason column, a clause per layer.
class Reasons {
 public:
  Reasons(std::span<const LayerSpec> layers, const StepModel& model,
          std::span<const LayerMeasurement> measured, const PlanOptions& options)
      : layers_(layers), model_(model), measured_(measured), options_(options) {}

  std::string Forced(std::size_t i) const {
    std::string reason = "forced by " + options_.forced_by;
    if (layers_[i].factors && !measured_[i].rows.empty()) reason += ": " + Bytes(i, SchemesFor(layers_[i]));
    return reason;
  }
  std::string ByBytes(std::size_t i, const PublishedRule& rule) const {
    return std::string(rule.factors_win() ? "fewest bytes" : "factors would be more bytes") + " at " +
           std::to_string(AllRows(measured_[i])) + " rows: " + Bytes(i, kPublished);
  }
  // `steps`: of the plan if this layer alone had each of `schemes`, which are those that it may have.
  std::string ByTime(std::size_t i, Scheme chosen, const std::vector<Scheme>& schemes,
                     const std::vector<double>& steps) const {
    const auto at = std::find(schemes.begin(), schemes.end(), chosen);
    const double step = steps[static_cast<std::size_t>(at - schemes.begin())];
    const double transfer = model_.cost(i, chosen).transfer;
    std::string others;  // what each would lead to
    std::string useless;
    bool all_useless = at == schemes.begin();
    bool bytes_less = false;
    for (std::size_t k = 0; k < schemes.size(); ++k) {
      if (schemes[k] == chosen) continue;
      const bool shorter = Shorter(step, steps[k]);
      const bool fewer_bytes = model_.cost(i, schemes[k]).transfer < transfer;
      all_useless = all_useless && !shorter && !Shorter(steps[k], step);
      bytes_less = bytes_less || fewer_bytes;
      const std::string sends(RowOf(schemes[k]).sends);
      others += ", with " + sends + " " + SecondsText(steps[k]);
      if (!shorter) others += fewer_bytes ? " and no gain" : " but more bytes to hide";
      useless += (useless.empty() ? "" : " or ") + sends;
    }
    const std::string numbers = ": " + Bytes(i, schemes, /*with_rebuilds=*/true);
    if (all_useless) {
      return useless + " would not shorten the step" +
             (bytes_less ? " (its bytes hide behind computing)" : "") + numbers;
    }
    return "step " + SecondsText(step) + others + numbers;
  }

 private:
  // Returns what each scheme sends, as "slices 2.40 MB, factors 333 kB, rebuild 2.02 ms".
  std::string Bytes(std::size_t i, std::span<const Scheme> schemes, bool with_rebuilds = false) const {
    std::string text;
    for (const Scheme scheme : schemes) {
      AddListed(std::string(RowOf(scheme).sends) + " " + BytesText(model_.worker_bytes(i, scheme).sent), &text);
      if (with_rebuilds && TakesFactors(scheme)) {
        AddListed("rebuild " + SecondsText(model_.cost(i, scheme).rebuild), &text);
      }
    }
    return text;
  }

  std::span<const LayerSpec> layers_;
  const StepModel& model_;
  std::span<const LayerMeasurement> measured_;
  const PlanOptions& options_;
};

// The schemes that the planner may give a layer, the simplest first.
std::vector<Scheme> Allowed(const LayerSpec& layer, bool products_agree, Policy policy) {
  std::vector<Scheme> allowed = SchemesFor(layer);
  std::erase_if(allowed, [&](Scheme scheme) {
    const bool would_drift = !products_agree && RowOf(scheme).needs_equal_products;
    const bool unpublished = std::find(std::begin(kPublished), std::end(kPublished), scheme) == std::end(kPublished);
    // The owners of slices multiply on their hosts, and what was measured is how fast devices do.
    const bool unmeasured = layer.is_multiplied_by_device() && RowOf(scheme).takes_factors && RowOf(scheme).through_shards;
    // A table has one scheme, which makes no product. Any other layer keeps kv, so the answer is never empty.
    return !layer.is_table() && (would_drift || unmeasured || (policy == Policy::kBytes && unpublished));
  });
  return allowed;
}

// The scheme of a layer that is not open to choice, and why; none if it is open.
struct Fixed {
  Scheme scheme;
  bool forced = false;
  std::string reason;  // empty where it is forced
};

std::optional<Fixed> FixedScheme(const LayerSpec& layer, const std::vector<Scheme>& allowed,
                                 bool products_agree, const ClusterSpec& cluster,
                                 const LayerMeasurement& measured, const PlanOptions& options) {
  const std::vector<Scheme> applying = SchemesFor(layer);
  const auto forced = options.forced.find(layer.name);
  const bool is_forced = forced != options.forced.end();
  const auto fixed = [&](std::string reason) {
    return Fixed{.scheme = allowed.front(), .reason = std::move(reason)};
  };
  if (applying.size() == 1 && (layer.is_table() || !is_forced)) {
    return fixed(std::string(RowOf(applying.front()).why_alone));
  }
  if (!products_agree) {
    if (is_forced && RowOf(forced->second).needs_equal_products) {
      return fixed(std::string(kProductsDiffer) + ", although factors are forced");
    }
    if (!is_forced && allowed.size() == 1) return fixed(kProductsDiffer);
  }
  if (is_forced) return Fixed{.scheme = forced->second, .forced = true, .reason = {}};
  if (options.only_dense) return fixed(kOnlyDense);
  if (cluster.workers == 1) return fixed("one worker has nothing to broadcast");
  // No rows at all, where its gradient came whole: what factors would take is not known then either.
  if (measured.rows.empty() || AllRows(measured) == 0) return fixed(kRowsUnknown);
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

// What is said of a layer before the search: its scheme, or that the search decides it.
struct BeforeSearch {
  std::vector<Scheme> schemes;  // of the layers that are decided; dense where the search decides
  std::vector<Open> open;
};

// Decides the layers that are not open to choice, and under Policy::kBytes all others, and sets their reasons.
BeforeSearch DecideWithoutTimes(std::span<const LayerSpec> layers, const Reasons& reasons, const PlanOptions& options,
                                Plan& plan) {
  BeforeSearch decided{std::vector<Scheme>(layers.size(), kDense), {}};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    LayerPlan& layer_plan = plan.layers[i];
    const LayerMeasurement& measured = layer_plan.measured;
    const bool products_agree = options.products_agree.empty() || options.products_agree[i];
    std::vector<Scheme> allowed = Allowed(layers[i], products_agree, options.policy);
    if (const auto fixed = FixedScheme(layers[i], allowed, products_agree, plan.cluster, measured, options)) {
      decided.schemes[i] = fixed->scheme;
      layer_plan.forced = fixed->forced;
      layer_plan.reason = fixed->forced ? reasons.Forced(i) : fixed->reason;
    } else if (options.policy == Policy::kBytes) {
      const PublishedRule rule =
          ApplyPublishedRule(*layers[i].factors, plan.cluster, plan.cluster.RowsByContributor(measured.rows));
      decided.schemes[i] = rule.factors_win() ? Scheme::kFactorBroadcast : Scheme::kKeyValue;
      layer_plan.reason = reasons.ByBytes(i, rule);
    } else {
      decided.open.push_back({.layer = i, .schemes = std::move(allowed), .products_agree = products_agree});
    }
  }
  return decided;
}

// Sets the reasons of the layers that the search decided: what a step would take with each scheme in turn.
void ExplainSearch(const StepModel& model, const Reasons& reasons, const std::vector<Open>& open,
                   const std::vector<Scheme>& schemes, Plan& plan) {
  const double step = model.Predict(schemes).step;
  for (const Open& one : open) {
    std::vector<double> steps;
    for (const Scheme scheme : one.schemes) {
      std::vector<Scheme> with = schemes;
      with[one.layer] = scheme;
      steps.push_back(scheme == schemes[one.layer] ? step : model.Predict(with).step);
    }
    std::string& reason = plan.layers[one.layer].reason;
    reason = reasons.ByTime(one.layer, schemes[one.layer], one.schemes, steps);
    if (!one.products_agree) reason += std::string("; ") + kProductsDiffer;
  }
}

void SetPredictions(const StepModel& model, const std::vector<Scheme>& schemes, Plan& plan) {
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    LayerPlan& layer_plan = plan.layers[i];
    layer_plan.scheme = schemes[i];
    layer_plan.bytes_sent = model.worker_bytes(i, schemes[i]).sent;
    layer_plan.bytes_received = model.worker_bytes(i, schemes[i]).received;
    layer_plan.transfer_seconds = model.cost(i, schemes[i]).transfer;
    layer_plan.rebuild_seconds = model.cost(i, schemes[i]).rebuild;
  }
  const StepPrediction prediction = model.Predict(schemes);
  const StepPrediction dense = model.Predict(std::vector<Scheme>(schemes.size(), kDense));
  plan.step_seconds = prediction.step;
  plan.compute_seconds = prediction.compute;
  plan.single_worker_seconds = model.single_worker_seconds();
  plan.speedup =
      prediction.step > 0 ? plan.cluster.workers * plan.single_worker_seconds / prediction.step : 0;
  plan.wfbp_seconds = prediction.wait_free;
  plan.dense_step_seconds = dense.step;
  plan.bytes_sent = prediction.busiest_worker.sent;
  plan.dense_bytes_sent = dense.busiest_worker.sent;
}

}  // namespace

Result<Plan> MakePlan(std::span<const LayerSpec> layers, const ClusterSpec& cluster,
                      std::span<const LayerMeasurement> measurements, const PlanOptions& options) {
  POSEIDON_RETURN_IF_ERROR(Check(layers, cluster, measurements, options));
  const auto slices = AssignSlices(layers, cluster.shards(), options.placement);
  const StepModel model(layers, slices, cluster, measurements, options.waits_for_all, options.placement);
  const Reasons reasons(layers, model, measurements, options);

  Plan plan;
  plan.policy = options.policy;
  plan.cluster = cluster;
  plan.layers.resize(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    plan.layers[i].layer = LayerId(static_cast<std::uint32_t>(i));
    plan.layers[i].measured = measurements[i];
  }
  auto [schemes, open] = DecideWithoutTimes(layers, reasons, options, plan);
  if (!open.empty()) schemes = TimeSearch(model, std::move(schemes), open).Run();
  ExplainSearch(model, reasons, open, schemes, plan);
  SetPredictions(model, schemes, plan);
  SetSendOrder(model, schemes, plan);
  return plan;
}

Result<Plan> ProvisionalPlan(std::span<const LayerSpec> layers, const ClusterSpec& cluster,
                             const PlanOptions& options) {
  const std::vector<LayerMeasurement> nothing(layers.size());
  POSEIDON_ASSIGN_OR_RETURN(Plan plan, MakePlan(layers, cluster, nothing, options));
  // The link is measured before layers are declared, so the model predicts transfers, but without any computing:
  // that would pass for the time of a step. Without rows a layer's time would be that of nothing sent.
  for (LayerPlan& layer_plan : plan.layers) {
    if (layer_plan.reason == kRowsUnknown) {
      layer_plan.reason = "until the first steps have been measured";
    }
    layer_plan.transfer_seconds = 0;
    layer_plan.rebuild_seconds = 0;
  }
  plan.step_seconds = 0;
  plan.compute_seconds = 0;
  plan.speedup = 0;
  plan.wfbp_seconds = 0;
  plan.dense_step_seconds = 0;
  return plan;
}

}  // namespace poseidon::plan
