// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/sweep.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "poseidon/base/lesser.h"
#include "poseidon/base/listed.h"
#include "poseidon/base/quantities.h"
#include "poseidon/base/wrapped.h"
#include "poseidon/messaging/budget.h"
#include "poseidon/plan/lanes.h"
#include "poseidon/plan/plan_model.h"
#include "poseidon/plan/units.h"

namespace poseidon::profile {
namespace {

using nlohmann::json;
using plan::Scheme;

// Predictions at one rate, each made once.
class Row {
 public:
  Row(const Profile& profile, const Setting& setting, double rate)
      : profile_(profile), setting_(setting), rate_(rate) {}

  Result<const Point*> At(std::uint32_t workers) {
    const auto known = points_.find(workers);
    if (known != points_.end()) return &known->second;
    POSEIDON_ASSIGN_OR_RETURN(Point point, Predict(profile_, setting_, workers, rate_));
    return &points_.emplace(workers, std::move(point)).first->second;
  }

  // The changes of a layer's scheme between two numbers of workers; none where it is the same at both.
  Result<std::vector<Crossover>> Between(std::uint32_t low, std::uint32_t last, std::size_t layer) {
    const auto scheme = [&](std::uint32_t workers) -> Result<Scheme> {
      POSEIDON_ASSIGN_OR_RETURN(const Point* point, At(workers));
      return point->plan.layers[layer].scheme;
    };
    std::vector<Crossover> changes;
    POSEIDON_ASSIGN_OR_RETURN(Scheme below, scheme(low));
    POSEIDON_ASSIGN_OR_RETURN(const Scheme at_last, scheme(last));
    while (below != at_last) {
      std::uint32_t high = last;
      while (high - low > 1) {
        const std::uint32_t middle = low + (high - low) / 2;
        POSEIDON_ASSIGN_OR_RETURN(const Scheme there, scheme(middle));
        (there == below ? low : high) = middle;
      }
      POSEIDON_ASSIGN_OR_RETURN(const Scheme from, scheme(high));
      changes.push_back({.layer = layer, .rate = rate_, .workers = high, .below = below, .from = from});
      below = from;
      low = high;
    }
    return changes;
  }

 private:
  const Profile& profile_;
  const Setting& setting_;
  const double rate_;
  std::map<std::uint32_t, Point> points_;
};

std::string SpeedupTable(const Sweep& sweep) {
  std::string text =
      "speed-up over one worker (key-value only, overlapped with backward only)\n";
  if (sweep.bandwidth > 0) text += "held to " + RateText(sweep.bandwidth) + " of every link\n";
  constexpr std::size_t kWidth = 14;  // so that five rates fit 80 columns
  text += "workers";
  for (const double rate : sweep.rates) text += Padded(RateText(rate), kWidth);
  for (std::size_t i = 0; i < sweep.workers.size(); ++i) {
    text += "\n" + Padded(std::to_string(sweep.workers[i]), 7);
    for (std::size_t j = 0; j < sweep.rates.size(); ++j) {
      const Point& point = sweep.at(i, j);
      text += Padded(plan::FactorText(point.plan.speedup) + " (" +
                         plan::FactorText(point.dense_wfbp_speedup()) + ")",
                     kWidth);
    }
  }
  return text + "\n";
}

// "1 Gbit/s sfb, kv from 33; 10 Gbit/s kv": what the layer does along every rate.
std::string CourseOf(std::size_t layer, const Sweep& sweep) {
  std::string text;
  for (std::size_t j = 0; j < sweep.rates.size(); ++j) {
    text += (j > 0 ? "; " : "") + RateText(sweep.rates[j]) + " " +
            std::string(NameOf(sweep.at(0, j).plan.layers[layer].scheme));
    for (const Crossover& crossover : sweep.crossovers) {
      if (crossover.layer != layer || crossover.rate != sweep.rates[j]) continue;
      text +=
          ", " + std::string(NameOf(crossover.from)) + " from " + std::to_string(crossover.workers);
    }
  }
  return text;
}

bool NeverChanges(std::size_t layer, const Sweep& sweep) {
  const Scheme first = sweep.points.front().plan.layers[layer].scheme;
  return std::all_of(sweep.points.begin(), sweep.points.end(),
                     [&](const Point& point) { return point.plan.layers[layer].scheme == first; });
}

std::string Named(const std::vector<std::size_t>& layers, const Profile& profile) {
  constexpr std::size_t kNamed = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, layers.size()); ++i) {
    AddListed(profile.layers[layers[i]].spec.name, &text);
  }
  if (layers.size() > kNamed) {
    text += " and " + std::to_string(layers.size() - kNamed) + " more";
  }
  return text;
}

std::string CourseText(const Sweep& sweep, const Profile& profile, std::size_t width) {
  std::map<std::string, std::vector<std::size_t>> alike;
  std::vector<std::string> order;
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    if (!profile.layers[i].spec.factors) continue;
    const std::string course =
        NeverChanges(i, sweep)
            ? std::string(NameOf(sweep.points.front().plan.layers[i].scheme)) + " everywhere"
            : CourseOf(i, sweep);
    if (alike[course].empty()) order.push_back(course);
    alike[course].push_back(i);
  }
  if (order.empty()) return "no layer has factors: every layer goes the key-value way\n";
  std::string text = "scheme by rate, and the number of workers from which it changes\n";
  for (const std::string& course : order) {
    text += Wrapped(Named(alike[course], profile) + ": " + course, width, 4, 2).insert(0, 2, ' ') + "\n";
  }
  return text;
}

}  // namespace

Result<Point> Predict(const Profile& profile, const Setting& setting, std::uint32_t workers,
                      double rate) {
  const std::vector<plan::LayerSpec> layers = LayersOf(profile);
  const std::vector<plan::LayerMeasurement> measured = MeasurementsOf(profile, workers);
  plan::ClusterSpec cluster = ClusterOf(profile);
  cluster.workers = workers;
  cluster.servers = setting.servers;
  for (std::uint32_t r = 0; setting.per_host > 1 && workers > 1 && r < workers; ++r) {
    cluster.host_of_rank.push_back(r / setting.per_host);
  }
  if (!cluster.host_of_rank.empty()) {
    cluster.cores_per_worker /= std::min(setting.per_host, workers);
    cluster.copy_bytes_per_second = setting.copy_rate / 8;
  }
  // On one host bytes are copied, and no link carries them.
  cluster.bandwidth = cluster.factors_are_flat() ? cluster.copy_bytes_per_second : rate / 8 * setting.goodput;
  if (setting.bandwidth > 0 && workers > 1) {
    // As a job's members share it (session/member.h).
    const std::size_t all = workers + setting.servers - 1;
    const std::size_t with_layers = cluster.host_of_rank.empty() || cluster.factors_are_flat() ? all : cluster.contributors() + setting.servers - 1;
    cluster.bandwidth = LesserRate(cluster.bandwidth, messaging::LayersWithin(messaging::PayloadWithin(setting.bandwidth / 8), {all, with_layers}));
  }
  cluster.latency = setting.latency;
  cluster.lanes = setting.lanes > 0 ? setting.lanes : plan::LanesFor(cluster);
  Point point{.workers = workers, .rate = rate, .plan = {}};
  POSEIDON_ASSIGN_OR_RETURN(point.plan, MakePlan(layers, cluster, measured, setting.options));
  const plan::StepModel model = ModelOf(point.plan, layers, cluster);
  point.t_star_seconds = model.Bound(SchemesOf(point.plan)).step;
  const std::vector<Scheme> dense(layers.size(), plan::kDense);
  point.dense_wfbp_seconds = model.Predict(dense).wait_free;
  return point;
}

Result<Sweep> RunSweep(const Profile& profile, const Setting& setting,
                       const std::vector<std::uint32_t>& workers,
                       const std::vector<double>& rates) {
  Sweep sweep{.workers = workers, .rates = rates, .bandwidth = setting.bandwidth, .points = {}, .crossovers = {}};
  sweep.points.resize(workers.size() * rates.size());
  for (std::size_t j = 0; j < rates.size(); ++j) {
    Row row(profile, setting, rates[j]);
    for (std::size_t i = 0; i < workers.size(); ++i) {
      POSEIDON_ASSIGN_OR_RETURN(const Point* point, row.At(workers[i]));
      sweep.points[i * rates.size() + j] = *point;
    }
    for (std::size_t layer = 0; layer < profile.layers.size(); ++layer) {
      for (std::size_t i = 0; i + 1 < workers.size(); ++i) {
        POSEIDON_ASSIGN_OR_RETURN(const std::vector<Crossover> changes,
                                  row.Between(workers[i], workers[i + 1], layer));
        sweep.crossovers.insert(sweep.crossovers.end(), changes.begin(), changes.end());
      }
    }
  }
  return sweep;
}

std::string SweepText(const Sweep& sweep, const Profile& profile, std::size_t width) {
  return SpeedupTable(sweep) + "\n" + CourseText(sweep, profile, width);
}

json PointJson(const Point& point, const Profile& profile) {
  json schemes = json::object();  // of the layers that have a choice
  for (std::size_t i = 0; i < point.plan.layers.size(); ++i) {
    const plan::LayerSpec& layer = profile.layers[i].spec;
    if (layer.factors) schemes[layer.name] = NameOf(point.plan.layers[i].scheme);
  }
  return {{"workers", point.workers},
          {"rate_bits_per_second", point.rate},
          {"step_seconds", point.plan.step_seconds},
          {"t_star_seconds", point.t_star_seconds},
          {"wfbp_seconds", point.plan.wfbp_seconds},
          {"compute_seconds", point.plan.compute_seconds},
          {"single_worker_seconds", point.plan.single_worker_seconds},
          {"speedup", point.plan.speedup},
          {"dense_step_seconds", point.plan.dense_step_seconds},
          {"dense_wfbp_seconds", point.dense_wfbp_seconds},
          {"dense_wfbp_speedup", point.dense_wfbp_speedup()},
          {"schemes", std::move(schemes)}};
}

json SweepJson(const Sweep& sweep, const Profile& profile) {
  json points = json::array();
  for (const Point& point : sweep.points) points.push_back(PointJson(point, profile));
  json crossovers = json::array();
  for (const Crossover& crossover : sweep.crossovers) {
    crossovers.push_back({{"layer", profile.layers[crossover.layer].spec.name},
                          {"rate_bits_per_second", crossover.rate},
                          {"workers", crossover.workers},
                          {"below", NameOf(crossover.below)},
                          {"from", NameOf(crossover.from)}});
  }
  return {{"workers", sweep.workers},
          {"rates_bits_per_second", sweep.rates},
          {"points", std::move(points)},
          {"crossovers", std::move(crossovers)}};
}

}  // namespace poseidon::profile
