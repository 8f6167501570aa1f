// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_REPORTER_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_REPORTER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontends/caffe/solver/observer.h"
#include "frontends/caffe/train/loss_watch.h"
#include "frontends/caffe/train/output.h"
#include "poseidon/base/new_file.h"
#include "poseidon/session/session.h"

namespace poseidon::caffe {

// Turns what the solver reports into the lines a person reads and into metrics.jsonl: one object a
// line, {"kind": "train" | "test" | "snapshot", "iteration", ...}; `elapsed` is in seconds since training began.
// Thread: the solver's.
class Reporter final : public SolverObserver {
 public:
  struct Options {
    std::string metrics_path;  // empty: no file
    std::uint64_t max_iter = 0;
    std::uint64_t images_per_iteration = 0;  // of all workers
    std::function<session::Statistics()> communication;  // so far; empty: there is none
    // Leaves outputs to Caffe's log, which stands in the same file: scripts that take ", loss = " for a line of it read that.
    bool outputs_in_log = false;
    std::string resumed_from;  // a .solverstate; empty: training began anew
    std::function<void(bool begins)> saving;  // called before and after every snapshot
  };
  // `prints`: false on the workers other than rank 0.
  Reporter(Output& output, bool prints) : output_(output), prints_(prints) {}
  // Before the first report but those of weights.
  void Begin(Options options);

  void OnIteration(const IterationReport& report) override;
  void OnTest(const TestReport& report) override;
  void OnSnapshotBegin() override;
  void OnSnapshot(const SnapshotReport& report) override;
  void OnWeights(const WeightsReport& report) override;
  void OnNote(const std::string& sentence) override;
  void OnDebugLine(const std::string& line) override;
  void OnNotFinite(const std::string& sentence) override;

  // OK, or which model and state the last attempt lost, and what is left: for the end of a run.
  Status SnapshotOutcome() const;

  // For summary.json. Rates leave out the first iterations, which pay for the start.
  std::uint64_t iterations() const { return iterations_; }
  double images_per_second() const;
  double median_step_seconds() const;
  // By worker, the share of the time, tests and snapshots included, in which layers of the training net computed on its device; empty on
  // the host, and in a job of several before steps have been metered. `overlap`: of the job; of a worker that trains alone nothing is
  // asked of it.
  std::vector<double> gpu_utilization(const session::OverlapMeter& overlap) const;
  // The seconds of that on this worker's device since the last call.
  double TakeDeviceSeconds() { return std::exchange(untaken_device_seconds_, 0); }
  // From here on step times count anew (the final plan holds).
  void ResetStepTimes() { step_seconds_.clear(); }
  // By output, with as many numbers as it has.
  const std::map<std::string, std::vector<double>>& last_test() const { return last_test_; }
  // The newest snapshot that was written, if any, and the newest attempt where that failed.
  const std::optional<SnapshotReport>& written_snapshot() const { return written_; }
  const std::optional<SnapshotReport>& lost_snapshot() const { return lost_; }

 private:
  void Metric(const std::string& line);
  double Elapsed() const;
  void ReportDisplayed(const IterationReport& report);
  std::string WhatIsLeft() const;
  std::string Rate() const;

  Output& output_;
  const bool prints_;
  Options options_;
  std::chrono::steady_clock::time_point begin_;
  std::unique_ptr<File> metrics_;
  std::uint64_t iterations_ = 0;
  double seconds_ = 0;
  double device_seconds_ = 0;
  double untaken_device_seconds_ = 0;
  double progress_at_ = 0;
  std::vector<double> step_seconds_;
  std::map<std::string, std::vector<double>> last_test_;
  LossWatch loss_watch_;
  std::optional<SnapshotReport> written_;
  std::optional<SnapshotReport> lost_;
  bool metrics_lost_ = false;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_REPORTER_H_
