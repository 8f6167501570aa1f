// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/reporter.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

namespace poseidon::caffe {
namespace {

using nlohmann::json;

// Between two progress lines.
constexpr double kProgressSeconds = 0.25;
// The rate shown is over this many iterations.
constexpr std::size_t kRateWindow = 100;

std::string Text(const char* format, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), format, value);
  return buffer;
}

std::string Clock(double seconds) {
  const auto whole = static_cast<long>(std::lround(seconds));
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  return buffer;
}

}  // namespace

void Reporter::Begin(Options options) {
  options_ = std::move(options);
  if (!options_.metrics_path.empty()) metrics_.open(options_.metrics_path, std::ios::app);
}

void Reporter::Metric(const std::string& line) {
  if (options_.metrics_path.empty() || metrics_lost_) return;
  metrics_ << line << std::endl;
  if (metrics_.good()) return;
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

std::string Reporter::Rate() const { return Text("%.0f images/s", images_per_second()); }

void Reporter::OnIteration(const IterationReport& report) {
  seconds_ += report.seconds;
  if (!report.closing) {
    iterations_ = report.iteration + 1;
    step_seconds_.push_back(report.seconds);
  }
  if (report.display) {
    json metric = {{"kind", "train"},
                   {"iteration", report.iteration},
                   {"loss", report.smoothed_loss},
                   {"rate", report.rate},
                   {"images_per_second", images_per_second()},
                   {"seconds", seconds_}};
    if (options_.hidden_share) metric["hidden_share"] = options_.hidden_share();
    Metric(metric.dump());
    if (prints_) {
      std::string line = "iteration " + std::to_string(report.iteration) + ", loss " +
                         Text("%.6g", report.smoothed_loss);
      if (!report.closing) line += ", lr " + Text("%.6g", report.rate) + ", " + Rate();
      output_.Print(line);
    }
  }
  if (prints_ && seconds_ - progress_at_ > kProgressSeconds && !report.closing) {
    progress_at_ = seconds_;
    const double left = static_cast<double>(options_.max_iter - std::min(options_.max_iter, iterations_)) *
                        median_step_seconds();
    std::string line = "iteration " + std::to_string(iterations_) + "/" +
                       std::to_string(options_.max_iter) + "  loss " +
                       Text("%.4f", report.smoothed_loss) + "  " + Rate() + "  lr " +
                       Text("%.4g", report.rate) + "  ETA " + Clock(left);
    if (options_.hidden_share) line += "  hidden " + Text("%.0f %%", 100 * options_.hidden_share());
    output_.Progress(line);
  }
}

void Reporter::OnTest(const TestReport& report) {
  json outputs = json::object();
  std::string line;
  for (const OutputValue& value : report.outputs) {
    const std::string name =
        report.net == 0 ? value.name : value.name + "#" + std::to_string(report.net);
    outputs[name] = value.value;
    last_test_[name] = value.value;
    line += ", " + name + " = " + Text("%.6g", value.value);
  }
  Metric(json{{"kind", "test"},
              {"iteration", report.iteration},
              {"net", report.net},
              {"outputs", outputs},
              {"seconds", report.seconds}}
             .dump());
  if (!prints_) return;
  output_.Print("test" + (report.net == 0 ? "" : " net " + std::to_string(report.net)) +
                " at iteration " + std::to_string(report.iteration) + line);
}

void Reporter::OnSnapshotBegin() {
  if (options_.saving) options_.saving(true);
}

void Reporter::OnSnapshot(const SnapshotReport& report) {
  if (options_.saving) options_.saving(false);
  Metric(json{{"kind", "snapshot"},
              {"iteration", report.iteration},
              {"state", report.state},
              {"ok", report.status.ok()},
              {"message", report.status.message()}}
             .dump());
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

// To standard error, where Caffe prints it.
void Reporter::OnDebugLine(const std::string& line) { output_.Log(LogLevel::kNotice, line); }

void Reporter::OnNotFinite(const std::string& sentence) {
  output_.Log(LogLevel::kWarning, sentence + "; training goes on");
}

}  // namespace poseidon::caffe
