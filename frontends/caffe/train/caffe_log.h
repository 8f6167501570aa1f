// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_CAFFE_LOG_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_CAFFE_LOG_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "frontends/caffe/solver/observer.h"
#include "frontends/caffe/train/output.h"

namespace poseidon::caffe {

// The lines of a training run that Caffe 1.0 writes through glog, as far as scripts read them: iterations with their loss and
// rate, outputs of both nets, tests, snapshots, beginning and end:
//   I1127 20:30:00.123456  4711 solver.cpp:218] Iteration 100 (12.3 iter/s, 8.1s/100 iters), loss = 0.5
// Files and line numbers are those of Caffe 1.0. The time is local. Thread: the solver's.
class CaffeLog final : public SolverObserver {
 public:
  struct Options {
    std::string net;        // its name
    std::string lr_policy;
    int display = 0;        // iterations from one display to the next
    std::uint64_t first_iteration = 0;
    std::string resumed_from;  // a .solverstate; empty: training begins anew
    bool hdf5 = false;      // the format of snapshots
  };
  explicit CaffeLog(Output& output) : output_(output) {}
  // Training begins; before the first report but those of weights.
  void Begin(Options options);
  // It has ended, or was stopped early.
  void End(bool stopped);

  void OnIteration(const IterationReport& report) override;
  void OnTestBegin(std::uint64_t iteration, int net) override;
  void OnTest(const TestReport& report) override;
  void OnSnapshot(const SnapshotReport& report) override;
  void OnWeights(const WeightsReport& report) override;

 private:
  // `where`: "solver.cpp:218".
  void Line(const char* where, const std::string& text);

  Output& output_;
  Options options_;
  std::uint64_t last_iteration_ = 0;  // the one displayed last, and when
  std::chrono::steady_clock::time_point last_display_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_CAFFE_LOG_H_
