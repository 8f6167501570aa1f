// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_OBSERVER_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_OBSERVER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "poseidon/base/status.h"

namespace poseidon::caffe {

// One number of a net's output blob; a blob with several elements gives several in a row.
struct OutputValue {
  std::string name;
  double value = 0;
  double loss_weight = 0;  // 0: no part of the loss
};

struct IterationReport {
  std::uint64_t iteration = 0;  // the one that ended, from 0
  double loss = 0;              // of this worker's rows, mean over iter_size
  double smoothed_loss = 0;     // mean over the last average_loss iterations
  double rate = 0;              // learning rate used; 0 when nothing was learned (see below)
  double seconds = 0;           // wall time of the iteration
  double wait_seconds = 0;      // of these, waiting for gradients of the iteration before
  double device_seconds = 0;    // from the begin to the end of what layers do on the device, known since the report before; 0 on the host
  bool display = false;         // an iteration that Caffe would print
  // True for the forward pass after the last iteration, made only to show its loss.
  bool closing = false;
  std::vector<OutputValue> outputs;  // of the training net, filled when `display`
};

struct TestReport {
  std::uint64_t iteration = 0;
  int net = 0;                       // which test net
  std::vector<OutputValue> outputs;  // means over all test batches of all workers
  bool has_loss = false;             // test_compute_loss
  double loss = 0;
  double seconds = 0;
};

struct SnapshotReport {
  std::uint64_t iteration = 0;
  std::string model;  // paths, also of a snapshot that failed
  std::string state;
  Status status;  // not OK: nothing was replaced, training goes on
  double seconds = 0;
};

// How a model file and the nets that took weights from it differ.
struct WeightsReport {
  std::string model;                   // the path
  std::vector<std::string> unused;     // layers that the file has weights for and no net has
  std::vector<std::string> untouched;  // layers with learned blobs that the file does not have
  // Names that several layers of the file with weights have: the first layer of the net took each in turn.
  std::vector<std::string> repeated = {};
};

// A report in a sentence; empty where file and nets have the same layers.
std::string InWords(const WeightsReport& report);

// Called at every event while a solver runs; it prints, writes and counts, the solver does not.
// Thread: called on the solver's thread; a slow observer slows training.
class SolverObserver {
 public:
  virtual ~SolverObserver() = default;
  virtual void OnIteration(const IterationReport& report) = 0;
  // A test net is about to run; OnTest follows, unless the test is stopped.
  virtual void OnTestBegin(std::uint64_t /*iteration*/, int /*net*/) {}
  virtual void OnTest(const TestReport& report) = 0;
  // A snapshot is about to be written; OnSnapshot follows, with how it went.
  virtual void OnSnapshotBegin() {}
  virtual void OnSnapshot(const SnapshotReport& report) = 0;
  // Weights were loaded, also before the solver is there for its caller (`weights` in a solver file).
  virtual void OnWeights(const WeightsReport& report) = 0;
  // Something that the user should know, in a sentence.
  virtual void OnNote(const std::string& /*sentence*/) {}
  // A line of debug_info.
  virtual void OnDebugLine(const std::string& /*line*/) {}
  // Numbers of this worker ceased to be finite, in a sentence; once, where training goes on all the same.
  virtual void OnNotFinite(const std::string& /*sentence*/) {}
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_OBSERVER_H_
