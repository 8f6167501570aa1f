// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_PROFILE_SWEEP_H_
#define POSEIDON_TOOLS_PROFILE_SWEEP_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "poseidon/base/result.h"
#include "poseidon/plan/plan.h"
#include "poseidon/plan/planner.h"
#include "tools/profile/profile.h"

// A profile on clusters that need not exist.
namespace poseidon::profile {

// The network and what the user wants of the plan.
struct Setting {
  double goodput = 0.956;  // of the line rate, that the payload gets
  double bandwidth = 0;    // of a link that a worker may use, bits per second each way; 0: all
  double latency = 0;      // seconds one way
  std::uint32_t servers = 0;
  std::uint32_t per_host = 1;  // workers that combine on their host first and share its cores
  std::uint16_t lanes = 0;     // of every worker; 0: as many as its link needs (plan::LanesFor)
  double copy_rate = 0;        // of a host's memory, bits per second; 0: copies count as free
  std::string strategy = "poseidon";  // whose `options` these are, for people
  plan::PlanOptions options;
};

// One cluster and what the model does on it.
struct Point {
  std::uint32_t workers = 1;
  double rate = 0;  // of a link, bits per second and direction
  plan::Plan plan;
  double t_star_seconds = 0;  // the least possible with the plan's schemes
  // With the key-value scheme for every layer and overlap in backward only.
  double dense_wfbp_seconds = 0;

  double dense_wfbp_speedup() const {
    return dense_wfbp_seconds > 0 ? workers * plan.single_worker_seconds / dense_wfbp_seconds : 0;
  }
};

// kInvalidArgument where the setting names layers that the profile does not have.
Result<Point> Predict(const Profile& profile, const Setting& setting, std::uint32_t workers,
                      double rate);

// At `rate` the layer uses `below` on fewer than `workers` workers and `from` from there on, until
// its next change.
struct Crossover {
  std::size_t layer = 0;  // of the profile
  double rate = 0;
  std::uint32_t workers = 0;
  plan::Scheme below = plan::kDense;
  plan::Scheme from = plan::kDense;

  friend bool operator==(const Crossover&, const Crossover&) = default;
};

struct Sweep {
  std::vector<std::uint32_t> workers;  // ascending
  std::vector<double> rates;
  double bandwidth = 0;               // as of Setting
  std::vector<Point> points;          // of workers[i] and rates[j] at i * rates.size() + j
  std::vector<Crossover> crossovers;  // by rate, then layer, then workers

  const Point& at(std::size_t worker, std::size_t rate) const {
    return points[worker * rates.size() + rate];
  }
};

// Every point of the grid; where a layer's scheme differs between two neighbouring numbers of
// workers, the exact numbers at which it changes (all but those of changes that are undone between them).
Result<Sweep> RunSweep(const Profile& profile, const Setting& setting,
                       const std::vector<std::uint32_t>& workers = {2, 4, 8, 16, 32, 64},
                       const std::vector<double>& rates = {1e9, 10e9, 25e9, 40e9, 100e9});

// For people: speed-ups as a table, and below it what changes scheme where; layers that change
// alike share a line, which is wrapped at `width` columns.
std::string SweepText(const Sweep& sweep, const Profile& profile, std::size_t width = std::string::npos);

nlohmann::json PointJson(const Point& point, const Profile& profile);
nlohmann::json SweepJson(const Sweep& sweep, const Profile& profile);

}  // namespace poseidon::profile

#endif  // POSEIDON_TOOLS_PROFILE_SWEEP_H_
