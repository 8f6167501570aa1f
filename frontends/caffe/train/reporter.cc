// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/reporter.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "frontends/caffe/train/numbers.h"
#include "poseidon/base/listed.h"

namespace poseidon::caffe {
namespace {

using nlohmann::json;

// Between two progress lines.
constexpr double kProgressSeconds = 0.25;
// The rate shown is over this many iterations.
constexpr std::size_t kRateWindow = 100;

// A path may be no UTF-8.
std::string LineOf(const json& metric) { return metric.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string Clock(double seconds) {
  const auto whole = static_cast<long>(std::lround(seconds));
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  return buffer;
}

// An output with its numbers in a row: "loss = 0.3", and with its share of the loss "loss1 = 1.2 (* 0.3 = 0.36 loss)".
struct NamedOutput {
  std::string name;
  double loss_weight = 0;
  std::vector<double> numbers;
};

std::vector<NamedOutput> Grouped(const std::vector<OutputValue>& values) {
  std::vector<NamedOutput> outputs;
  for (const OutputValue& value : values) {
    if (outputs.empty() || outputs.back().name != value.name) outputs.push_back({value.name, value.loss_weight, {}});
    outputs.back().numbers.push_back(value.value);
  }
  return outputs;
}

std::string InWords(const NamedOutput& output, bool weighted) {
  std::string words = output.name + " =";
  for (std::size_t i = 0; i < std::min(output.numbers.size(), kMostNumbersShown); ++i) words += NumberText(" %.6g", output.numbers[i]);
  if (output.numbers.size() > kMostNumbersShown) words += " ... (" + std::to_string(output.numbers.size()) + " numbers)";
  if (!weighted || output.loss_weight == 0) return words;
  const double sum = std::accumulate(output.numbers.begin(), output.numbers.end(), 0.0);
  return words + NumberText(" (* %.6g", output.loss_weight) + NumberText(" = %.6g loss)", output.loss_weight * sum);
}

// By name.
json ValuesOf(const std::vector<NamedOutput>& outputs) {
  json values = json::object();
  for (const NamedOutput& output : outputs) {
    values[output.name] = NumbersJson(output.numbers);
  }
  return values;
}

// Whether the line of an iteration says it all with its loss.
bool IsTheLossAlone(const std::vector<OutputValue>& values) {
  return values.size() == 1 && values.front().loss_weight == 1;
}

}  // namespace

void Reporter::Begin(Options options) {
  options_ = std::move(options);
  begin_ = std::chrono::steady_clock::now();
}

double Reporter::Elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

void Reporter::Metric(const std::string& line) {
  if (options_.metrics_path.empty() || metrics_lost_) return;
  if (!metrics_) {  // only now: a run that reports nothing leaves no file
    if (Result<std::unique_ptr<File>> file = NewFile(options_.metrics_path); file.ok()) metrics_ = *std::move(file);
  }
  if (metrics_ && WriteAll(metrics_->fd(), line + "\n").ok()) return;
  metrics_lost_ = true;
  output_.Log(LogLevel::kWarning, options_.metrics_path + " cannot be written any more and ends at iteration " +
                                      std::to_string(iterations_));
}

double Reporter::median_step_seconds() const {
  if (step_seconds_.empty()) return 0;
  std::vector<double> sorted = step_seconds_;
  auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double Reporter::images_per_second() const {
  const std::size_t count = std::min(kRateWindow, step_seconds_.size());
  const double seconds =
      std::accumulate(step_seconds_.end() - static_cast<std::ptrdiff_t>(count), step_seconds_.end(), 0.0);
  return seconds > 0 ? static_cast<double>(options_.images_per_iteration * count) / seconds : 0;
}

std::vector<double> Reporter::gpu_utilization(const session::OverlapMeter& overlap) const {
  const bool alone = !options_.communication;
  std::vector<double> shares = alone ? std::vector<double>{device_seconds_} : overlap.on_device();
  // From one step's begin to the next one's, tests and all: what a device does for a step may last until after its iteration.
  const double seconds = alone ? Elapsed() : overlap.seconds();
  if (seconds == 0 || std::ranges::all_of(shares, [](double on_device) { return on_device == 0; })) return {};
  for (double& share : shares) share = std::min(1.0, share / seconds);
  return shares;
}

std::string Reporter::Rate() const { return NumberText("%.0f images/s", images_per_second()); }

void Reporter::OnIteration(const IterationReport& report) {
  seconds_ += report.seconds;
  device_seconds_ += report.device_seconds;
  untaken_device_seconds_ += report.device_seconds;
  if (!report.closing) {
    iterations_ = report.iteration + 1;
    step_seconds_.push_back(report.seconds);
  }
  if (report.display) ReportDisplayed(report);
  if (const std::string hint = loss_watch_.Take(report); !hint.empty() && prints_) {
    output_.Log(LogLevel::kWarning, hint);
  }
  if (prints_ && seconds_ - progress_at_ > kProgressSeconds && !report.closing) {
    progress_at_ = seconds_;
    const double left = static_cast<double>(options_.max_iter - std::min(options_.max_iter, iterations_)) *
                        median_step_seconds();
    std::string line = "iteration " + std::to_string(iterations_) + "/" +
                       std::to_string(options_.max_iter) + "  loss " +
                       NumberText("%.4f", report.smoothed_loss) + "  " + Rate() + "  lr " +
                       NumberText("%.4g", report.rate) + "  ETA " + Clock(left);
    if (options_.communication) line += "  hidden " + NumberText("%.0f %%", 100 * options_.communication().hidden_share());
    output_.Progress(line);
  }
}

void Reporter::ReportDisplayed(const IterationReport& report) {
  const std::vector<NamedOutput> outputs = Grouped(report.outputs);
  json metric = {{"kind", "train"},
                 {"iteration", report.iteration},
                 {"loss", report.smoothed_loss},
                 {"images_per_second", images_per_second()},
                 {"seconds", seconds_},
                 {"elapsed", Elapsed()},
                 {"outputs", ValuesOf(outputs)}};
  if (!report.closing) metric["rate"] = report.rate;  // nothing is learned in the closing pass
  session::OverlapMeter overlap;
  if (options_.communication) {
    const session::Statistics counted = options_.communication();
    overlap = counted.overlap;
    metric["hidden_share"] = counted.hidden_share();
    metric["wire_bytes_sent"] = counted.wire.wire_bytes_out;
    metric["wire_bytes_received"] = counted.wire.wire_bytes_in;
  }
  if (const std::vector<double> shares = gpu_utilization(overlap); !shares.empty()) metric["gpu_utilization"] = shares;
  Metric(LineOf(metric));
  if (!prints_) return;
  const std::string iteration = "iteration " + std::to_string(report.iteration);
  std::string line = iteration + ", loss " + NumberText("%.6g", report.smoothed_loss);
  if (!report.closing) line += ", lr " + NumberText("%.6g", report.rate) + ", " + Rate();
  output_.Print(line);
  if (outputs.empty() || IsTheLossAlone(report.outputs) || options_.outputs_in_log) return;
  std::string words;
  for (const NamedOutput& output : outputs) AddListed(InWords(output, /*weighted=*/true), &words);
  output_.Print(iteration + ", outputs of the training net: " + words);
}

void Reporter::OnTest(const TestReport& report) {
  std::vector<NamedOutput> named = Grouped(report.outputs);
  std::string line;
  for (NamedOutput& output : named) {
    if (report.net != 0) output.name += "#" + std::to_string(report.net);
    line += ", " + InWords(output, /*weighted=*/false);
  }
  const json outputs = ValuesOf(named);
  for (NamedOutput& output : named) last_test_[output.name] = std::move(output.numbers);
  Metric(LineOf({{"kind", "test"},
                 {"iteration", report.iteration},
                 {"net", report.net},
                 {"outputs", outputs},
                 {"seconds", report.seconds},
                 {"elapsed", Elapsed()}}));
  if (!prints_ || options_.outputs_in_log) return;
  output_.Print("test" + (report.net == 0 ? "" : " net " + std::to_string(report.net)) +
                " at iteration " + std::to_string(report.iteration) + line);
}

void Reporter::OnSnapshotBegin() {
  if (options_.saving) options_.saving(true);
}

void Reporter::OnSnapshot(const SnapshotReport& report) {
  if (options_.saving) options_.saving(false);
  Metric(LineOf({{"kind", "snapshot"},
                 {"iteration", report.iteration},
                 {"state", report.state},
                 {"ok", report.status.ok()},
                 {"message", report.status.message()}}));
  if (report.status.ok()) {
    written_ = report;
    lost_.reset();
    if (prints_) output_.Print("snapshot " + report.state);
    return;
  }
  lost_ = report;
  output_.Log(LogLevel::kError, "no snapshot at iteration " + std::to_string(report.iteration) + ": " +
                                    report.status.message() + "; " + WhatIsLeft());
}

std::string Reporter::WhatIsLeft() const {
  if (written_) return "the one of iteration " + std::to_string(written_->iteration) + " is left, " + written_->state;
  if (!options_.resumed_from.empty()) return "the one that this run began from is left, " + options_.resumed_from;
  return "this run has none";
}

Status Reporter::SnapshotOutcome() const {
  if (!lost_) return OkStatus();
  return ResourceExhausted("the model and state of iteration " + std::to_string(lost_->iteration) + " are lost: " +
                           lost_->status.message() + "; of the snapshots " + WhatIsLeft());
}

void Reporter::OnWeights(const WeightsReport& report) {
  const std::string words = InWords(report);
  if (prints_ && !words.empty()) output_.Print(words);
}

void Reporter::OnNote(const std::string& sentence) {
  if (prints_) output_.Log(LogLevel::kNotice, sentence);
}

// To standard error, where Caffe prints it.
void Reporter::OnDebugLine(const std::string& line) { output_.Log(LogLevel::kNotice, line); }

void Reporter::OnNotFinite(const std::string& sentence) {
  output_.Log(LogLevel::kWarning, sentence + "; training goes on");
}

}  // namespace poseidon::caffe
