// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_RUN_REPORTS_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_RUN_REPORTS_H_

#include <functional>
#include <string>

#include "frontends/caffe/solver/solver.h"
#include "frontends/caffe/train/caffe_log.h"
#include "frontends/caffe/train/net_outputs.h"
#include "frontends/caffe/train/observers.h"
#include "frontends/caffe/train/options.h"
#include "frontends/caffe/train/reporter.h"

namespace poseidon::caffe {

// Rows of the first layer that has any: a worker's batch.
std::uint64_t BatchOf(const Net& net);

// All that listens to a worker's solver: the reporter, and where the task asks for them Caffe's log (on rank 0) and the table of
// net outputs. Thread: the solver's. Lifetime: task and output outlive it.
class RunReports {
 public:
  RunReports(const MemberTask& task, Output& output);
  RunReports(const RunReports&) = delete;
  RunReports& operator=(const RunReports&) = delete;

  SolverObserver& observer() { return observers_; }
  Reporter& reporter() { return reporter_; }

  // Training begins. The functions are those of Reporter::Options.
  void Begin(Solver& solver, std::function<session::Statistics()> communication, std::function<void(bool begins)> saving);
  // It has ended well; called by all workers. With one, `collectives` may be null. A failure is the job's.
  Status End(Solver& solver, Collectives* collectives);
  // After End, on rank 0: writes what the task asks for besides the run directory.
  Status WriteNetOutputs() const;

 private:
  bool logs() const { return task_.options.caffe_log && task_.rank == 0; }  // Caffe's log

  const MemberTask& task_;
  Observers observers_;
  Reporter reporter_;
  CaffeLog caffe_log_;
  NetOutputs net_outputs_;
  Result<std::string> net_outputs_text_ = std::string();
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_RUN_REPORTS_H_
