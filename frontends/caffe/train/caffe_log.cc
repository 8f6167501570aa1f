// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/caffe_log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <utility>
#include <vector>

#include "frontends/caffe/train/numbers.h"

namespace poseidon::caffe {
namespace {

// As a C++ stream writes it, which is how Caffe does.
std::string Number(double value) { return NumberText("%g", value); }

// "I1127 20:30:00.123456  4711 ", as glog begins a line of level INFO: month, day, time, and the thread, here the process.
std::string Prefix() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(now));
  const auto fraction = now - std::chrono::floor<std::chrono::seconds>(now);
  std::tm local{};
  localtime_r(&seconds, &local);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "I%02d%02d %02d:%02d:%02d.%06d %5d ", local.tm_mon + 1, local.tm_mday, local.tm_hour,
                local.tm_min, local.tm_sec,
                static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(fraction).count()),
                static_cast<int>(getpid()));
  return text.data();
}

// One line for every number of every output, numbered on: "    Train net output #0: loss = 0.5 (* 1 = 0.5 loss)".
std::vector<std::string> OutputLines(const char* which, const std::vector<OutputValue>& outputs) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const OutputValue& output = outputs[i];
    std::string line = std::string("    ") + which + " net output #" + std::to_string(i) + ": " + output.name + " = " +
                       Number(output.value);
    if (output.loss_weight != 0) {
      line += " (* " + Number(output.loss_weight) + " = " + Number(output.loss_weight * output.value) + " loss)";
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

void CaffeLog::Line(const char* where, const std::string& text) {
  std::string line = Prefix() + where + "] " + text;
  // A name may hold anything; a line stays one.
  std::replace_if(line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  output_.PrintLog(line);
}

void CaffeLog::Begin(Options options) {
  options_ = std::move(options);
  last_iteration_ = options_.first_iteration;
  last_display_ = std::chrono::steady_clock::now();
  if (!options_.resumed_from.empty()) Line("caffe.cpp:242", "Resuming from " + options_.resumed_from);
  Line("caffe.cpp:248", "Starting Optimization");
  Line("solver.cpp:272", "Solving " + options_.net);
  Line("solver.cpp:273", "Learning Rate Policy: " + options_.lr_policy);
}

void CaffeLog::End(bool stopped) {
  // Caffe's solver and its program both say it, the second also of a run that was stopped.
  Line(stopped ? "solver.cpp:295" : "solver.cpp:315", stopped ? "Optimization stopped early." : "Optimization Done.");
  Line("caffe.cpp:259", "Optimization Done.");
}

void CaffeLog::OnIteration(const IterationReport& report) {
  if (!report.display) return;
  const std::string iteration = "Iteration " + std::to_string(report.iteration);
  if (report.closing) return Line("solver.cpp:310", iteration + ", loss = " + Number(report.smoothed_loss));
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - last_display_).count();
  const auto done = static_cast<double>(report.iteration - last_iteration_);
  Line("solver.cpp:218", iteration + " (" + Number(seconds > 0 ? done / seconds : done) + " iter/s, " + Number(seconds) + "s/" +
                             std::to_string(options_.display) + " iters), loss = " + Number(report.smoothed_loss));
  last_display_ = now;
  last_iteration_ = report.iteration;
  for (const std::string& line : OutputLines("Train", report.outputs)) Line("solver.cpp:237", line);
  Line("sgd_solver.cpp:105", iteration + ", lr = " + Number(report.rate));
}

void CaffeLog::OnTestBegin(std::uint64_t iteration, int net) {
  Line("solver.cpp:330", "Iteration " + std::to_string(iteration) + ", Testing net (#" + std::to_string(net) + ")");
}

void CaffeLog::OnTest(const TestReport& report) {
  if (report.has_loss) Line("solver.cpp:384", "Test loss: " + Number(report.loss));
  for (const std::string& line : OutputLines("Test", report.outputs)) Line("solver.cpp:397", line);
}

void CaffeLog::OnSnapshot(const SnapshotReport& report) {
  if (!report.status.ok()) return;
  Line(options_.hdf5 ? "solver.cpp:457" : "solver.cpp:447",
       std::string("Snapshotting to ") + (options_.hdf5 ? "HDF5" : "binary proto") + " file " + report.model);
  Line(options_.hdf5 ? "sgd_solver.cpp:283" : "sgd_solver.cpp:273",
       std::string("Snapshotting solver state to ") + (options_.hdf5 ? "HDF5" : "binary proto") + " file " + report.state);
}

void CaffeLog::OnWeights(const WeightsReport& report) { Line("caffe.cpp:155", "Finetuning from " + report.model); }

}  // namespace poseidon::caffe
