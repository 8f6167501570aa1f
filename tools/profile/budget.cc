// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/budget.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "poseidon/base/quantities.h"
#include "poseidon/base/wrapped.h"
#include "poseidon/plan/plan_model.h"
#include "poseidon/plan/units.h"

namespace poseidon::profile {
namespace {

using nlohmann::json;

std::uint64_t StepsOf(double images, double epochs, double images_a_step) {
  return static_cast<std::uint64_t>(std::ceil(images * epochs / images_a_step));
}

// Every layer whole at one of the shards in turn, and transfers that wait until the backward pass is over.
Cost WholeLayers(const Point& point, const Profile& profile) {
  const std::vector<plan::LayerSpec> layers = LayersOf(profile);
  const plan::StepModel model = ModelOf(point.plan, layers, point.plan.cluster, plan::Placement::kWhole);
  const plan::StepPrediction predicted = model.Predict(std::vector<plan::Scheme>(layers.size(), plan::kDense));
  return {.name = "whole_layers",
          .description = "a parameter server of whole layers, no overlap",
          .step_seconds = predicted.compute + predicted.link,
          .bytes = predicted.busiest_worker.sent};
}

std::string Printed(const char* format, double number) {
  std::array<char, 32> text{};
  return {text.data(), static_cast<std::size_t>(std::snprintf(text.data(), text.size(), format, number))};
}

// Three digits also of what is small.
std::string Number(double number) { return number >= 1 ? plan::NumberText(number) : Printed("%.3g", number); }

std::string BudgetLine(const std::string& what, const std::string& days, const std::string& hours, const std::string& sent,
                       const std::string& speedup) {
  std::string line = "  " + what;
  line.resize(std::max<std::size_t>(line.size(), 50), ' ');
  return line + Padded(days, 8) + Padded(hours, 15) + Padded(sent, 14) + Padded(speedup, 10) + "\n";
}

}  // namespace

std::vector<Cost> CostsOf(const Point& point, const Profile& profile, const Setting& setting, double images, double epochs) {
  const plan::Plan& plan = point.plan;
  std::vector<Cost> costs = {{.name = "plan", .description = "this plan", .step_seconds = plan.step_seconds, .bytes = plan.bytes_sent},
                             {.name = "backward_only",
                              .description = "this plan, overlapped with backward only",
                              .step_seconds = plan.wfbp_seconds,
                              .bytes = plan.bytes_sent},
                             {.name = "key_value_only",
                              .description = "key-value only, overlapped with backward only",
                              .step_seconds = point.dense_wfbp_seconds,
                              .bytes = plan.dense_bytes_sent},
                             WholeLayers(point, profile)};
  const double batch = profile.batch;
  // Workers of one host are one machine; so is a dedicated server.
  const std::uint32_t hosts = (point.workers + setting.per_host - 1) / setting.per_host;
  const Cost alone{.name = "one_worker",
                   .description = "one worker alone",
                   .steps = StepsOf(images, epochs, batch),
                   .step_seconds = plan.single_worker_seconds};
  for (Cost& cost : costs) {
    cost.steps = StepsOf(images, epochs, batch * point.workers);
    cost.machines = hosts + setting.servers;
    cost.speedup = cost.days() > 0 ? alone.days() / cost.days() : 0;
  }
  costs.push_back(alone);
  return costs;
}

std::string BudgetText(const std::vector<Cost>& costs, const Profile& profile, double images, double epochs, std::size_t width) {
  const Cost& planned = costs.front();
  std::string text = Wrapped("budget of " + Printed("%g", epochs) + " epochs of " + std::to_string(static_cast<std::uint64_t>(images)) + " images: " +
                                 std::to_string(planned.steps) + " steps of " + std::to_string(profile.batch) +
                                 " images a worker, " + std::to_string(costs.back().steps) + " on one",
                             width, 2) +
                     "\n" + BudgetLine("", "days", "machine-hours", "worker sends", "speed-up");
  for (const Cost& cost : costs) {
    text += BudgetLine(cost.description, Number(cost.days()), Number(cost.machine_hours()),
                       plan::BytesText(static_cast<std::uint64_t>(cost.bytes_in_all())), plan::FactorText(cost.speedup));
  }
  return text;
}

json BudgetJson(const std::vector<Cost>& costs, double images, double epochs) {
  json ways = json::object();
  for (const Cost& cost : costs) {
    ways[cost.name] = {{"steps", cost.steps},
                       {"step_seconds", cost.step_seconds},
                       {"days", cost.days()},
                       {"machine_hours", cost.machine_hours()},
                       {"bytes_sent_by_a_worker", cost.bytes_in_all()},
                       {"machines", cost.machines},
                       {"speedup", cost.speedup}};
  }
  return {{"images", images}, {"epochs", epochs}, {"ways", std::move(ways)}};
}

}  // namespace poseidon::profile
