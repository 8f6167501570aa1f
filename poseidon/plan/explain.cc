// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/explain.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <set>
#include <utility>
#include <vector>

#include "poseidon/base/check.h"
#include "poseidon/base/wrapped.h"
#include "poseidon/plan/hosts.h"
#include "poseidon/plan/plan_model.h"
#include "poseidon/plan/units.h"

namespace poseidon::plan {
namespace {

// A step that gets shorter by less is not worth a sentence.
constexpr double kWorthSaying = 0.02;

enum class Side { kLeft, kRight };

struct Column {
  std::string heading;
  Side side = Side::kLeft;
  std::vector<std::string> cells = {};
};

// The headings and the rows, each a line with two blanks between columns.
std::vector<std::string> Aligned(const std::vector<Column>& columns) {
  const std::size_t lines = columns.front().cells.size();
  std::vector<std::string> text(lines + 1);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const Column& column = columns[c];
    std::size_t width = Columns(column.heading);
    for (const std::string& cell : column.cells) width = std::max(width, Columns(cell));
    for (std::size_t i = 0; i <= lines; ++i) {
      const std::string& cell = i == 0 ? column.heading : column.cells[i - 1];
      const std::string space(width - Columns(cell), ' ');
      if (c > 0) text[i] += "  ";
      text[i] += column.side == Side::kRight ? space + cell : cell + space;
    }
  }
  for (std::string& line : text) line.erase(line.find_last_not_of(' ') + 1);
  return text;
}

std::size_t WidthOf(const std::vector<std::string>& lines) {
  std::size_t width = 0;
  for (const std::string& line : lines) width = std::max(width, Columns(line));
  return width;
}

constexpr std::size_t kIndent = 4;

std::string Indented(const std::string& line) { return std::string(kIndent, ' ') + line; }

std::string RowsText(const std::vector<std::uint32_t>& rows) {
  if (rows.empty()) return "-";
  const auto [least, most] = std::minmax_element(rows.begin(), rows.end());
  if (*least == *most) return std::to_string(*most);
  return std::to_string(*least) + ".." + std::to_string(*most);
}

}  // namespace

std::string PlanTable(const Plan& plan, std::span<const LayerSpec> layers, std::span<const LayerOutcome> outcomes,
                      std::size_t width) {
  POSEIDON_CHECK(plan.layers.size() == layers.size(), "the plan is for other layers");
  POSEIDON_CHECK(outcomes.empty() || outcomes.size() == layers.size(),
                 "the outcomes are of other layers");
  std::vector<Column> names = {{.heading = "layer"}, {.heading = "shape"}};
  std::vector<Column> numbers = {
      {.heading = "rows", .side = Side::kRight},     {.heading = "scheme"},
      {.heading = "sends", .side = Side::kRight},    {.heading = "receives", .side = Side::kRight},
      {.heading = "transfer", .side = Side::kRight}, {.heading = "rebuild", .side = Side::kRight},
  };
  std::vector<Column> measured;
  if (!outcomes.empty()) {
    measured = {{.heading = "sent", .side = Side::kRight},
                {.heading = "received", .side = Side::kRight},
                {.heading = "landed after", .side = Side::kRight}};
  }
  Column reason{.heading = "reason"};
  const auto add = [](std::vector<Column>* columns, std::initializer_list<std::string> cells) {
    auto column = columns->begin();
    for (const std::string& cell : cells) (column++)->cells.push_back(cell);
  };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerPlan& layer = plan.layers[i];
    add(&names, {layers[i].name, layers[i].shape});
    add(&numbers, {layers[i].factors ? RowsText(layer.measured.rows) : "-", std::string(NameOf(layer.scheme)),
                   BytesText(layer.bytes_sent), BytesText(layer.bytes_received), SecondsText(layer.transfer_seconds),
                   TakesFactors(layer.scheme) ? SecondsText(layer.rebuild_seconds) : "-"});
    if (!outcomes.empty()) {
      add(&measured, {BytesText(outcomes[i].bytes_sent), BytesText(outcomes[i].bytes_received), SecondsText(outcomes[i].seconds)});
    }
    reason.cells.push_back(layer.reason);
  }
  const auto joined = [](std::vector<Column> columns, const std::vector<Column>& more) {
    columns.insert(columns.end(), more.begin(), more.end());
    return columns;
  };
  const std::vector<Column> narrow = joined(names, numbers);
  std::vector<std::string> lines = Aligned(joined(joined(narrow, measured), {reason}));
  std::string text;
  if (WidthOf(lines) <= width) {
    for (const std::string& line : lines) text += line + "\n";
    return text;
  }
  lines = Aligned(narrow);
  std::set<std::string> said;  // a reason that many layers have is given once
  const bool names_apart = WidthOf(lines) > width;
  if (names_apart) lines = Aligned(numbers);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (names_apart && i > 0) text += Wrapped(layers[i - 1].name + " " + layers[i - 1].shape, width, kIndent) + "\n";
    text += (names_apart ? Indented(lines[i]) : lines[i]) + "\n";
    if (i == 0) continue;
    std::string rest;
    for (const Column& column : measured) rest += (rest.empty() ? "" : ", ") + column.heading + " " + column.cells[i - 1];
    if (said.insert(reason.cells[i - 1]).second) rest += (rest.empty() ? "" : "; ") + reason.cells[i - 1];
    if (!rest.empty()) text += Indented(Wrapped(rest, width, kIndent, kIndent)) + "\n";
  }
  return text;
}

std::string PlanSummary(const Plan& plan, double measured_step_seconds) {
  std::string text;
  if (plan.step_seconds > 0) {
    text = "predicted step " + SecondsText(plan.step_seconds);
    if (measured_step_seconds > 0) {
      text += ", measured median " + SecondsText(measured_step_seconds) + " (" +
              FactorText(measured_step_seconds / plan.step_seconds) + ")";
    }
    text += "; computing " + SecondsText(plan.compute_seconds) +
            ", with overlap in backward only " + SecondsText(plan.wfbp_seconds) +
            ", key-value only " + SecondsText(plan.dense_step_seconds) + "; ";
    // The measured times are those of one worker on its cores, so the speed-up holds where each has cores of its own.
    text += "predicted with a machine for each " + std::string(plan.cluster.host_of_rank.empty() ? "worker" : "host") +
            ": " + FactorText(plan.speedup) + " the speed of one worker; ";
  } else {
    text = "nothing was measured yet; ";
  }
  if (plan.cluster.host_of_rank.empty()) {
    text += "a worker sends " + BytesText(plan.bytes_sent) + " per step";
  } else if (plan.cluster.factors_are_flat()) {
    text += std::to_string(plan.cluster.workers) + " workers combine on one host; " +
            (plan.bytes_sent > 0 ? "factors go from worker to worker, of which one sends " + BytesText(plan.bytes_sent) + " per step at most"
                                 : "nothing is sent");
  } else {
    const std::uint16_t leaders = plan.cluster.leaders();
    text += std::to_string(plan.cluster.workers) + " workers combine on " + HostsText(plan.cluster.contributors()) + "; " +
            (leaders > 1 ? std::to_string(leaders) + " of each exchange for it, and send " : "a host sends ") +
            BytesText(plan.bytes_sent) + (leaders > 1 ? " each per step at most" : " per step");
  }
  if (plan.cluster.lanes > 1) text += " through " + std::to_string(plan.cluster.lanes) + " lanes";
  // A forced scheme may send more than slices would; then nothing is saved.
  if (plan.dense_bytes_sent > plan.bytes_sent) {
    const double saved =
        1 - static_cast<double>(plan.bytes_sent) / static_cast<double>(plan.dense_bytes_sent);
    text += ", " + PercentText(saved) + " less than " + BytesText(plan.dense_bytes_sent) +
            " key-value only";
  }
  return text;
}

std::string WhatCompressionSaved(std::span<const LayerOutcome> outcomes) {
  std::uint64_t sent = 0;
  std::uint64_t whole = 0;
  for (const LayerOutcome& outcome : outcomes) {
    sent += outcome.bytes_sent;
    whole += outcome.whole_bytes_sent;
  }
  if (whole <= sent || sent == 0) return {};
  return "factors left without their zeros: sent " + BytesText(sent) + " per step in place of " + BytesText(whole) +
         " (" + FactorText(static_cast<double>(whole) / static_cast<double>(sent)) + " fewer)";
}

std::string WhatWouldHelp(const Plan& plan, std::span<const LayerSpec> layers) {
  POSEIDON_CHECK(plan.layers.size() == layers.size(), "the plan is for other layers");
  if (plan.cluster.workers == 1) return "one worker waits for no network";
  if (plan.step_seconds <= 0) return "what would help is known once the first steps are measured";
  const Doubled doubled = DoubledOf(plan, layers);
  struct Change {
    const char* what;
    double step;
  };
  const Change changes[] = {
      {"a network twice as fast", doubled.network},
      {"half the latency", doubled.latency},
      // Not a faster engine: what backward is measured to spend on its own product stays.
      {"a rebuild product twice as fast", doubled.rebuilding},
      {"one more core per worker for the network", doubled.cores},
      {"copying through the host's memory twice as fast", doubled.copies},
  };
  const Change& best =
      *std::min_element(std::begin(changes), std::end(changes),
                        [](const Change& a, const Change& b) { return a.step < b.step; });
  const double now = ModelOf(plan, layers, plan.cluster).Predict(SchemesOf(plan)).step;
  if (best.step > now * (1 - kWorthSaying)) {
    return "computing bounds the step: a faster network would gain less than " +
           PercentText(kWorthSaying);
  }
  return std::string("what would help most: ") + best.what + " makes the step " +
         SecondsText(best.step) + " instead of " + SecondsText(now) + " (" +
         FactorText(now / best.step) + ")";
}

Doubled DoubledOf(const Plan& plan, std::span<const LayerSpec> layers) {
  POSEIDON_CHECK(plan.layers.size() == layers.size(), "the plan is for other layers");
  const std::vector<Scheme> schemes = SchemesOf(plan);
  const StepModel model = ModelOf(plan, layers, plan.cluster);
  // Speeds changes neither the latency nor the number of cores nor the copies, so the model is made anew for these.
  ClusterSpec nearer = plan.cluster;
  nearer.latency /= 2;
  ClusterSpec spare_core = plan.cluster;
  spare_core.cores_per_worker += 1;
  ClusterSpec faster_memory = plan.cluster;
  faster_memory.copy_bytes_per_second *= 2;
  return {.computing = model.Predict(schemes, {.computing = 2}).step,
          .rebuilding = model.Predict(schemes, {.rebuilding = 2}).step,
          .network = model.Predict(schemes, {.network = 2}).step,
          .latency = ModelOf(plan, layers, nearer).Predict(schemes).step,
          .cores = ModelOf(plan, layers, spare_core).Predict(schemes).step,
          .copies = ModelOf(plan, layers, faster_memory).Predict(schemes).step};
}

std::string WhatBounds(const Plan& plan, std::span<const LayerSpec> layers) {
  if (plan.step_seconds <= 0) return "what bounds the step is known once it is measured";
  const Doubled doubled = DoubledOf(plan, layers);
  struct Resource {
    const char* name;
    const char* doubled;
    double step;
    bool used;
  };
  const auto with_factors = [](const LayerPlan& layer) { return TakesFactors(layer.scheme); };
  const Resource resources[] = {
      {"computing", "computing twice as fast", doubled.computing, true},
      {"the network", "a network twice as fast", doubled.network, plan.cluster.workers > 1},
      {"the network's latency", "half the latency", doubled.latency,
       plan.cluster.workers > 1 && plan.cluster.latency > 0},
      {"rebuilding from factors", "rebuilding twice as fast", doubled.rebuilding,
       std::any_of(plan.layers.begin(), plan.layers.end(), with_factors)},
      {"serving the network by the cores that compute", "one more core per worker", doubled.cores,
       plan.cluster.cpu_seconds_per_wire_byte > 0},
      {"copying through the host's memory", "copying twice as fast", doubled.copies,
       !plan.cluster.host_of_rank.empty() && plan.cluster.copy_bytes_per_second > 0},
  };
  // Computing is used in every plan and comes first, so it bounds the step where no other resource gains more.
  const Resource* bound = &resources[0];
  for (const Resource& resource : resources) {
    if (resource.used && resource.step < bound->step) bound = &resource;
  }
  const auto gain = [&](const Resource& resource) {
    return std::string(resource.doubled) + " makes the step " + SecondsText(resource.step) +
           " instead of " + SecondsText(plan.step_seconds) + " (" +
           FactorText(plan.step_seconds / resource.step) + ")";
  };
  std::string text = std::string(bound->name) + " bounds the step: " + gain(*bound);
  for (const Resource& resource : resources) {
    if (&resource == bound || !resource.used) continue;
    text +=
        std::string(", ") + resource.doubled + " " + FactorText(plan.step_seconds / resource.step);
  }
  return text;
}

std::string HowSpread(const Plan& plan, std::span<const LayerSpec> layers) {
  const double rate = SpreadRate(plan, layers);
  if (rate <= 0) return "";
  return "transfers are spread over the step: a worker sends at most " + PercentText(rate / plan.cluster.bandwidth) +
         " of the network's rate";
}

}  // namespace poseidon::plan
