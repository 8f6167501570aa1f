// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/summary.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "frontends/caffe/proto/at.h"
#include "frontends/caffe/train/numbers.h"
#include "poseidon/base/listed.h"
#include "poseidon/base/quantities.h"
#include "poseidon/base/wrapped.h"
#include "poseidon/plan/compression.h"
#include "poseidon/plan/explain.h"
#include "poseidon/plan/lanes.h"
#include "poseidon/plan/payload.h"
#include "poseidon/plan/slices.h"

namespace poseidon::caffe {
namespace {

using nlohmann::json;

messaging::TrafficCell Since(const messaging::TrafficCell& before,
                             const messaging::TrafficCell& after) {
  messaging::TrafficCell cell = after;
  cell.sent.payload_bytes -= before.sent.payload_bytes;
  cell.received.payload_bytes -= before.received.payload_bytes;
  cell.sent.whole_bytes -= before.sent.whole_bytes;
  cell.received.whole_bytes -= before.received.whole_bytes;
  return cell;
}

// Payload and time per step of every layer under the final plan; empty if the run ended before.
std::vector<plan::LayerOutcome> OutcomesOf(const EndedRun& run) {
  const session::ModelStatistics& before = run.sync->before_final_plan();
  const session::ModelStatistics& after = run.trained;
  const std::uint64_t steps = run.sync->steps_under_final_plan();
  std::vector<plan::LayerOutcome> outcomes;
  if (steps == 0) return outcomes;
  for (std::size_t i = 0; i < after.layers.size(); ++i) {
    const session::LayerStatistics none;
    const session::LayerStatistics& first = i < before.layers.size() ? before.layers[i] : none;
    const session::LayerStatistics& last = after.layers[i];
    const messaging::TrafficCell dense = Since(first.gradients, last.gradients);
    const messaging::TrafficCell factors = Since(first.factors, last.factors);
    outcomes.push_back({.bytes_sent = (dense.sent.payload_bytes + factors.sent.payload_bytes) / steps,
                        .bytes_received = (dense.received.payload_bytes + factors.received.payload_bytes) / steps,
                        .seconds = last.steps > 0 ? last.seconds / static_cast<double>(last.steps) : 0,
                        .whole_bytes_sent = (dense.sent.whole_bytes + factors.sent.whole_bytes) / steps,
                        .whole_bytes_received = (dense.received.whole_bytes + factors.received.whole_bytes) / steps});
  }
  return outcomes;
}

// The plan with this worker's own bytes, exact, where the plan has the busiest worker's: slices of
// different workers may differ by 16 elements.
plan::Plan OwnPlan(const SessionSync& sync, int rank) {
  plan::Plan own = sync.model().plan();
  const auto slices = plan::AssignSlices(sync.specs(), own.cluster.shards(), sync.strategy().placement);
  const std::vector<plan::LayerPayload> payloads = plan::PayloadsOf(sync.specs(), slices, own.layers, own.cluster, sync.strategy().placement);
  for (std::size_t i = 0; i < own.layers.size(); ++i) {
    const plan::NodeBytes& bytes = At(payloads[i].workers, rank);
    own.layers[i].bytes_sent = bytes.sent;
    own.layers[i].bytes_received = bytes.received;
  }
  return own;
}

// Where the run's newest snapshot is, and which attempt after it failed.
json SnapshotsOf(const Reporter& reporter) {
  json snapshots = {{"written", nullptr}, {"lost", nullptr}};
  if (const auto& written = reporter.written_snapshot()) {
    snapshots["written"] = {{"iteration", written->iteration}, {"state", written->state}, {"model", written->model}};
  }
  if (const auto& lost = reporter.lost_snapshot()) {
    snapshots["lost"] = {{"iteration", lost->iteration}, {"reason", lost->status.message()}};
  }
  return snapshots;
}

json PlanOf(const EndedRun& run, const plan::Plan& used) {
  json plan = json::array();
  const std::vector<plan::LayerOutcome> outcomes = OutcomesOf(run);
  for (std::size_t i = 0; i < used.layers.size(); ++i) {
    const plan::LayerPlan& layer = used.layers[i];
    json entry = {{"layer", run.sync->specs()[i].name},
                  {"scheme", plan::NameOf(layer.scheme)},
                  {"rows", layer.measured.rows},
                  {"reason", layer.reason},
                  {"predicted_bytes", {{"sent", layer.bytes_sent}, {"received", layer.bytes_received}}},
                  {"predicted_seconds", layer.transfer_seconds + layer.rebuild_seconds}};
    if (run.sync->members()[i].size() > 1) entry["joined"] = run.sync->members()[i];
    if (!outcomes.empty()) {
      entry["counted_bytes"] = {{"sent", outcomes[i].bytes_sent}, {"received", outcomes[i].bytes_received}};
      entry["whole_bytes"] = {{"sent", outcomes[i].whole_bytes_sent}, {"received", outcomes[i].whole_bytes_received}};
      entry["measured_seconds"] = outcomes[i].seconds;
    } else {
      entry["counted_bytes"] = nullptr;  // the run ended before its final plan
      entry["whole_bytes"] = nullptr;
      entry["measured_seconds"] = nullptr;
    }
    plan.push_back(std::move(entry));
  }
  return plan;
}

// By output.
json TestOf(const Reporter& reporter) {
  json test = json::object();
  for (const auto& [name, numbers] : reporter.last_test()) {
    test[name] = NumbersJson(numbers);
  }
  return test;
}

json NotFiniteOf(const EndedRun& run, const NotFinite& found) {
  return {{"iteration", found.iteration},
          {"worker", found.worker},
          {"layer", found.layer < 0 ? "" : run.net.UniqueName(found.layer)},
          {"message", InWords(found, run.net, run.task.options.workers)},
          {"stopped", run.task.options.on_nan == "stop"}};
}

json TrafficOf(const EndedRun& run) {
  const session::Statistics& counted = run.statistics;
  const auto count = [](const messaging::TrafficCell& cell) {
    return json{{"sent", cell.sent.payload_bytes}, {"received", cell.received.payload_bytes}};
  };
  std::uint64_t headers_out = counted.control.sent.header_bytes + counted.collectives.sent.header_bytes;
  std::uint64_t local_bytes = 0;
  for (const session::LayerStatistics& layer : run.trained.layers) {
    local_bytes += layer.local_bytes;
    headers_out += layer.gradients.sent.header_bytes + layer.factors.sent.header_bytes;
  }
  return {{"control_payload", count(counted.control)},
          {"collective_payload", count(counted.collectives)},
          {"header_bytes_sent", headers_out},
          {"shared_memory_bytes", local_bytes},
          {"encryption_bytes_sent", counted.wire.wire_bytes_out - counted.wire.bytes_written},
          {"encryption_bytes_received", counted.wire.wire_bytes_in - counted.wire.bytes_read},
          {"wire_bytes_sent", counted.wire.wire_bytes_out},
          {"wire_bytes_received", counted.wire.wire_bytes_in}};
}

constexpr std::size_t kIndent = 2;  // of a sentence's further lines

// One figure where the workers' are the same, else the least and the most.
std::string BusyWords(const std::vector<double>& shares) {
  if (shares.empty()) return "";
  const auto [least, most] = std::ranges::minmax(shares);
  const std::string from = NumberText("%.0f", 100 * least);
  const std::string to = NumberText("%.0f", 100 * most);
  return ", GPU" + std::string(shares.size() == 1 ? "" : "s") + " busy " + (from == to ? to : from + " to " + to) + " % of the time";
}

void PrintPlan(const EndedRun& run, Output& out) {
  const plan::Plan used = OwnPlan(*run.sync, run.task.rank);
  const std::vector<plan::LayerOutcome> outcomes = OutcomesOf(run);
  // No empty line before it: Caffe's parse_log.py, given all that a run prints, ends at one.
  const std::string& strategy = run.task.options.strategy;
  std::string how = strategy == "poseidon" ? "" : ", strategy " + strategy;
  if (run.statistics.bandwidth > 0) how += ", held to " + RateText(8 * run.statistics.bandwidth);
  out.Print("plan (per worker and step" + how + "):\n" + plan::PlanTable(used, run.sync->specs(), outcomes, out.width()) +
            Wrapped(plan::PlanSummary(used, run.reporter.median_step_seconds()), out.width(), kIndent) + "\n" +
            Wrapped(plan::WhatWouldHelp(used, run.sync->specs()), out.width(), kIndent));
  const auto mode =
      plan::ParseZeroCompression(run.task.options.zero_compression).value_or(plan::ZeroCompression::kAuto);
  for (const std::string& line : {plan::WhenFactorsAreCompressed(used, mode), plan::WhatCompressionSaved(outcomes)}) {
    if (!line.empty()) out.Print(Wrapped(line, out.width(), kIndent));
  }
  const session::OverlapMeter& overlap = run.statistics.overlap;
  const double steps = static_cast<double>(std::max<std::uint64_t>(1, overlap.steps()));
  char line[200];
  std::snprintf(line, sizeof line,
                "communication hidden behind computation: %.0f %% (of the mean step's %.1f ms, waited %.1f ms for bytes and "
                "%.1f ms for slower workers)",
                100 * run.statistics.hidden_share(), 1e3 * overlap.seconds() / steps, 1e3 * overlap.exposed() / steps,
                1e3 * overlap.skew() / steps);
  out.Print(Wrapped(line, out.width(), kIndent));
}

}  // namespace

std::string SummaryText(const EndedRun& run) {
  const Reporter& reporter = run.reporter;
  json plan = json::array();
  double predicted = 0;
  std::string helps;
  if (run.sync != nullptr) {
    const plan::Plan used = OwnPlan(*run.sync, run.task.rank);
    plan = PlanOf(run, used);
    predicted = used.step_seconds;
    helps = plan::WhatWouldHelp(used, run.sync->specs());
  }
  json summary = {{"workers", run.task.options.workers},
                  {"servers", run.task.options.servers},
                  {"strategy", run.task.options.strategy},
                  {"iterations", run.solver.iteration()},
                  {"seconds", run.seconds},
                  {"images_per_s", reporter.images_per_second()},
                  {"test", TestOf(reporter)},
                  {"snapshot", SnapshotsOf(reporter)},
                  {"plan", std::move(plan)},
                  {"step_seconds", {{"predicted", predicted}, {"measured", reporter.median_step_seconds()}}},
                  {"hidden_share", run.statistics.hidden_share()},
                  {"replicas_equal", run.replicas_equal},
                  {"weights_hash", run.weights_hash},
                  {"threads", run.threads}};
  if (const std::vector<double> shares = reporter.gpu_utilization(run.statistics.overlap); !shares.empty()) {
    summary["gpu_utilization"] = shares;
  }
  if (const auto& found = run.solver.not_finite()) summary["not_finite"] = NotFiniteOf(run, *found);
  if (run.sync != nullptr) {
    const session::Statistics& counted = run.statistics;
    summary["traffic"] = TrafficOf(run);
    summary["what_would_help"] = helps;
    summary["waited_seconds"] = {{"communication", counted.overlap.exposed()},
                                 {"slower_workers", counted.overlap.skew()},
                                 {"of", counted.overlap.seconds()},
                                 {"steps", counted.overlap.steps()}};
    summary["computed_seconds"] = counted.overlap.computed();
    summary["first_iteration"] = run.sync->first_iteration();
    summary["busy_seconds"] = counted.busy_seconds;
    summary["core_allocated_bytes"] = counted.allocated_bytes;
    summary["link"] = {{"bytes_per_second", counted.link.bytes_per_second},
                       {"latency_seconds", counted.link.latency_seconds},
                       {"bandwidth_bytes_per_second", counted.bandwidth}};
  }
  return summary.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

void PrintEnd(const EndedRun& run, Output& out) {
  if (run.sync != nullptr) PrintPlan(run, out);
  std::string tests;
  for (const auto& [name, numbers] : run.reporter.last_test()) {
    if (numbers.size() > kMostNumbersShown) continue;
    std::string words = name;
    for (const double value : numbers) words += NumberText(" %.4f", value);
    AddListed(words, &tests);
  }
  if (!tests.empty()) out.Print("last test: " + tests);
  char line[200];
  std::snprintf(line, sizeof line, "%llu iterations in %.1f s, %.0f images/s",
                static_cast<unsigned long long>(run.solver.iteration()), run.seconds,
                run.reporter.images_per_second());
  out.Print(line + BusyWords(run.reporter.gpu_utilization(run.statistics.overlap)));
  out.Print("weights " + run.weights_hash.substr(0, 16) +
            (run.replicas_equal ? ", equal on all workers" : ", NOT EQUAL"));
}

}  // namespace poseidon::caffe
