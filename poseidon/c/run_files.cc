// SPDX-License-Identifier: Apache-2.0
#include "poseidon/c/run_files.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "poseidon/base/new_file.h"
#include "poseidon/plan/explain.h"

namespace poseidon::c {
namespace {

using nlohmann::json;

// Of what the trainer, the program and `poseidon report` leave.
constexpr const char* kFiles[] = {"summary.json", "plan.json", "trace.json", "metrics.jsonl", "report.html"};

// Whose layer it is; null where its model has been given back.
const Account::Model* ModelOf(const Account& account, const TraceSpan& span) {
  const auto found = std::find_if(account.models.begin(), account.models.end(),
                                  [&](const Account::Model& model) { return model.number == span.model; });
  return found != account.models.end() ? &*found : nullptr;
}

// Names have their model's number where there are several models.
std::string NameOf(const Account& account, const Account::Model& model, std::size_t layer) {
  const std::string& name = model.layers[layer].name;
  return account.models.size() > 1 ? "model " + std::to_string(model.number) + ": " + name : name;
}

double SumOf(const Account& account, double plan::Plan::*seconds) {
  double sum = 0;
  for (const Account::Model& model : account.models) sum += model.plan.*seconds;
  return sum;
}

// The median of the steps in the trace, from what leaves first in one to that of the next, of the model with most steps there;
// without a trace the mean of those that were measured.
double StepSeconds(const Account& account) {
  std::map<std::uint16_t, std::map<std::uint64_t, TimePoint>> begins;  // by model and step
  for (const TraceSpan& span : account.spans) {
    if (span.lane != TraceLane::kSend) continue;
    TimePoint& begin = begins[span.model].try_emplace(span.step, span.begin).first->second;
    begin = std::min(begin, span.begin);
  }
  std::vector<double> steps;
  const auto most = std::max_element(begins.begin(), begins.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (most != begins.end()) {
    for (const auto& [step, begin] : most->second) {
      const auto next = most->second.find(step + 1);
      if (next != most->second.end()) steps.push_back(ToSeconds(next->second - begin));
    }
  }
  if (steps.empty()) {
    const session::OverlapMeter& overlap = account.counted.overlap;
    return overlap.seconds() / static_cast<double>(std::max<std::uint64_t>(1, overlap.steps()));
  }
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  return *middle;
}

// Of the model whose step is predicted to take longest.
std::string WhatWouldHelp(const Account& account) {
  const auto longest = std::max_element(account.models.begin(), account.models.end(), [](const Account::Model& a, const Account::Model& b) {
    return a.plan.step_seconds < b.plan.step_seconds;
  });
  return longest != account.models.end() ? plan::WhatWouldHelp(longest->plan, longest->layers) : std::string();
}

json BytesOf(std::uint64_t sent, std::uint64_t received) { return {{"sent", sent}, {"received", received}}; }

json SummaryOf(const Account& account) {
  std::uint64_t iterations = 0;
  json plan = json::array();
  for (const Account::Model& model : account.models) {
    for (std::size_t i = 0; i < model.counted.layers.size(); ++i) {
      const session::LayerStatistics& layer = model.counted.layers[i];
      iterations = std::max(iterations, layer.steps);
      const std::uint64_t steps = std::max<std::uint64_t>(1, layer.steps);
      plan.push_back(
          {{"layer", NameOf(account, model, i)},
           {"scheme", plan::NameOf(model.plan.layers[i].scheme)},
           {"counted_bytes",
            BytesOf((layer.gradients.sent.payload_bytes + layer.factors.sent.payload_bytes) / steps,
                    (layer.gradients.received.payload_bytes + layer.factors.received.payload_bytes) / steps)},
           {"measured_seconds", layer.seconds / static_cast<double>(steps)}});
    }
  }
  const session::OverlapMeter& overlap = account.counted.overlap;
  return {{"workers", account.workers},
          {"iterations", iterations},
          {"step_seconds", {{"measured", StepSeconds(account)}, {"predicted", SumOf(account, &plan::Plan::step_seconds)}}},
          {"what_would_help", WhatWouldHelp(account)},
          {"hidden_share", account.counted.hidden_share()},
          {"waited_seconds",
           {{"communication", overlap.exposed()},
            {"slower_workers", overlap.skew()},
            {"of", overlap.seconds()},
            {"steps", overlap.steps()}}},
          {"computed_seconds", overlap.computed()},
          {"link",
           {{"bytes_per_second", account.counted.link.bytes_per_second},
            {"latency_seconds", account.counted.link.latency_seconds},
            {"bandwidth_bytes_per_second", account.counted.bandwidth}}},
          {"plan", std::move(plan)}};
}

// Of the models together; empty where nothing was declared.
json PlanOf(const Account& account) {
  if (account.models.empty()) return json::object();
  json layers = json::array();
  std::uint64_t switch_step = 0;
  for (const Account::Model& model : account.models) {
    switch_step = std::max<std::uint64_t>(switch_step, model.plan.switch_step.value());
    for (std::size_t i = 0; i < model.plan.layers.size(); ++i) {
      const plan::LayerPlan& layer = model.plan.layers[i];
      layers.push_back({{"layer", NameOf(account, model, i)},
                        {"shape", model.layers[i].shape},
                        {"scheme", plan::NameOf(layer.scheme)},
                        {"reason", layer.reason},
                        {"predicted_bytes", BytesOf(layer.bytes_sent, layer.bytes_received)},
                        {"predicted_seconds", layer.transfer_seconds + layer.rebuild_seconds}});
    }
  }
  return {{"workers", account.workers},
          {"switch_step", switch_step},
          {"bandwidth_bytes_per_second", account.counted.link.bytes_per_second},
          {"step_seconds", SumOf(account, &plan::Plan::step_seconds)},
          {"compute_seconds", SumOf(account, &plan::Plan::compute_seconds)},
          {"wfbp_seconds", SumOf(account, &plan::Plan::wfbp_seconds)},
          {"dense_step_seconds", SumOf(account, &plan::Plan::dense_step_seconds)},
          {"layers", std::move(layers)}};
}

double Microseconds(Duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

// In the format of Chrome's traces, as the trainer writes it: a process is a worker, a thread a lane.
json TraceOf(const Account& account) {
  TimePoint origin{Duration::max()};
  for (const TraceSpan& span : account.spans) origin = std::min(origin, span.begin);
  json events = json::array();
  events.push_back({{"ph", "M"},
                    {"name", "process_name"},
                    {"pid", account.rank.value()},
                    {"args", {{"name", "worker " + std::to_string(account.rank.value())}}}});
  for (int lane = 0; lane <= static_cast<int>(kLastLane); ++lane) {
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", account.rank.value()},
                      {"tid", lane},
                      {"args", {{"name", poseidon::NameOf(static_cast<TraceLane>(lane))}}}});
  }
  for (const TraceSpan& span : account.spans) {
    const std::vector<plan::LayerSpec>& layers = ModelOf(account, span)->layers;
    const bool of_a_layer = span.layer >= 0 && static_cast<std::size_t>(span.layer) < layers.size();
    events.push_back(
        {{"ph", "X"},
         {"pid", account.rank.value()},
         {"tid", static_cast<int>(span.lane)},
         {"cat", poseidon::NameOf(span.lane)},
         {"name", of_a_layer ? span.label + (" " + layers[static_cast<std::size_t>(span.layer)].name) : span.label},
         {"ts", Microseconds(span.begin - origin)},
         {"dur", Microseconds(span.end - span.begin)},
         {"args", {{"step", span.step}, {"bytes", span.bytes}, {"model", span.model}}}});
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

Status Write(const json& content, int indent, const std::filesystem::path& path) {
  return ReplaceFile(path.string(), content.dump(indent, ' ', false, json::error_handler_t::replace) + "\n", path.string() + ".part");
}

Status WriteInto(const std::filesystem::path& folder, const Account& account) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) return Unavailable("it cannot be made: " + failed.message());
  POSEIDON_RETURN_IF_ERROR(Write(SummaryOf(account), 1, folder / "summary.json"));
  POSEIDON_RETURN_IF_ERROR(Write(PlanOf(account), 1, folder / "plan.json"));
  return Write(TraceOf(account), -1, folder / "trace.json");
}

}  // namespace

void LeaveOutGivenBack(Account* account) {
  std::vector<TraceSpan>& spans = account->spans;
  if (!spans.empty()) {
    std::vector<TimePoint> begins;
    for (const TraceSpan& span : spans) begins.push_back(span.begin);
    const auto middle = begins.begin() + static_cast<std::ptrdiff_t>(begins.size() / 2);
    std::nth_element(begins.begin(), middle, begins.end());
    std::erase_if(account->models, [&](const Account::Model& model) {
      return std::none_of(spans.begin(), spans.end(),
                          [&](const TraceSpan& span) { return span.model == model.number && span.begin >= *middle; });
    });
  }
  std::erase_if(spans, [&](const TraceSpan& span) { return ModelOf(*account, span) == nullptr; });
}

RunFiles::RunFiles(std::string folder, LogSink* log) : folder_(std::move(folder)), log_(log) {
  std::error_code ignored;  // what cannot be removed cannot be written either, which is said then
  for (const char* name : kFiles) std::filesystem::remove(folder_ / name, ignored);
}

void RunFiles::Note(std::uint64_t step, bool test, std::span<const std::pair<std::string, double>> numbers) {
  if (failed_) return;
  json known = json::object();
  for (const auto& [name, value] : numbers) known[name] = std::isfinite(value) ? json(value) : json();
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  json line = {{"kind", test ? "test" : "train"}, {"iteration", step}, {"elapsed", std::round(elapsed * 1e3) / 1e3}};
  if (test) {
    line["outputs"] = std::move(known);
  } else {
    line.update(known);
  }
  if (const Status added = AddLine(line.dump(-1, ' ', false, json::error_handler_t::replace)); !added.ok()) {
    failed_ = true;
    log_->Log(LogLevel::kWarning, (folder_ / "metrics.jsonl").string() + " has no losses of this run: " + added.message());
  }
}

Status RunFiles::AddLine(const std::string& line) {
  if (curves_ == nullptr) {
    std::error_code failed;
    std::filesystem::create_directories(folder_, failed);
    if (failed) return Unavailable("its folder cannot be made: " + failed.message());
    POSEIDON_ASSIGN_OR_RETURN(curves_, NewFile((folder_ / "metrics.jsonl").string()));
  }
  return WriteAll(curves_->fd(), line + "\n");
}

void RunFiles::WriteAccount(const Account& account) {
  if (const Status written = WriteInto(folder_, account); !written.ok()) {
    log_->Log(LogLevel::kWarning, folder_.string() + " has no account of this run: " + written.message());
  }
}

}  // namespace poseidon::c
