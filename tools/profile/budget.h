// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_PROFILE_BUDGET_H_
#define POSEIDON_TOOLS_PROFILE_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/profile/profile.h"
#include "tools/profile/sweep.h"

// What a whole training takes on a cluster that need not exist: predicted steps, multiplied.
namespace poseidon::profile {

// One way to train the images so many times.
struct Cost {
  std::string name;          // of the JSON
  std::string description;   // of the table
  std::uint64_t steps = 0;
  double step_seconds = 0;   // predicted
  std::uint64_t bytes = 0;   // that the worker that sends most sends in a step
  std::uint32_t machines = 1;
  double speedup = 1;        // how many times as fast as one machine

  double days() const { return static_cast<double>(steps) * step_seconds / 86'400; }
  double machine_hours() const { return 24 * days() * machines; }
  double bytes_in_all() const { return static_cast<double>(steps) * static_cast<double>(bytes); }
};

// Returns, for `epochs` passes over `images` images with a batch of the profile's on every worker: the plan of `point`; the same with
// overlap in the backward pass only; without factors; a parameter server that keeps whole layers and overlaps nothing, as those of
// 2015 did; and one worker alone, of the same batch. `profile` and `setting` are those that the point was predicted for. Pre: images and epochs
// are above 0.
std::vector<Cost> CostsOf(const Point& point, const Profile& profile, const Setting& setting, double images, double epochs);

// A line for each, in a table: days, machine-hours, what a worker sends, speed-up.
std::string BudgetText(const std::vector<Cost>& costs, const Profile& profile, double images, double epochs, std::size_t width);
nlohmann::json BudgetJson(const std::vector<Cost>& costs, double images, double epochs);

}  // namespace poseidon::profile

#endif  // POSEIDON_TOOLS_PROFILE_BUDGET_H_
