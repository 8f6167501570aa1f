// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_TEST_RUN_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_TEST_RUN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "frontends/caffe/data/data_share.h"
#include "frontends/caffe/net/net.h"
#include "frontends/caffe/solver/average_precision.h"
#include "frontends/caffe/solver/collectives.h"
#include "frontends/caffe/solver/observer.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Means of a net's outputs over test batches.
struct TestMeans {
  std::vector<OutputValue> outputs;
  double loss = 0;
  bool stopped = false;  // cut short: there are no means
};

struct TestRun {
  std::uint64_t first_batch = 0;  // the batches are [first_batch, first_batch + batches)
  int batches = 0;
  DataShare share;                      // batch i is on worker i mod world
  Collectives* collectives = nullptr;   // may be null when share.world is 1
  NetHooks hooks = {};
  // Called behind every batch of this worker, with its number from 0 and its outputs. May be empty.
  std::function<void(int batch, const std::vector<OutputValue>& outputs)> on_batch = {};
  // Asked now and then; once it is true on one worker, the run ends early on all of them. May be empty.
  std::function<bool()> stop_wanted = {};
};

// Runs the batches forward through `net`. The values of each batch are brought together and added in batch order, so
// that the means are the same for any number of workers. Memory does not grow with the number of batches.
Result<TestMeans> RunTest(Net* net, const TestRun& run);

// The average precision of a net whose outputs are those of DetectionEvaluate, over test batches.
struct TestPrecision {
  std::vector<OutputValue> outputs;  // the mean over classes, one for each output
  std::vector<std::map<int, double>> classes;  // by class, for each output
  bool stopped = false;  // cut short: there is no precision
};

// The same, for outputs whose rows AveragePrecision takes: the rows of all batches are brought together in batch order.
Result<TestPrecision> RunDetectionTest(Net* net, const TestRun& run, ApVersion version);

// The outputs of `net` as they are now, element by element.
std::vector<OutputValue> OutputsOf(const Net& net);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_TEST_RUN_H_
