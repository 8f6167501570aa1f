// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_NET_OUTPUTS_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_NET_OUTPUTS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "frontends/caffe/solver/collectives.h"
#include "frontends/caffe/solver/observer.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// The outputs of a run as the table that Poseidon-Caffe (2015) wrote at its end, PREFIX.netoutputs: a block for the training net,
// one for each test net, each a line of names and a line for every display or test,
//   Iteration,time,loss,accuracy,
//   0,1.5,2.3,0.1,
// and an empty line. Time is seconds since the beginning. Numbers are means over the workers. The loss of a test is 0 without
// test_compute_loss. Here an output of several numbers has as many columns, named NAME, NAME#1, ...; there it had one name.
// Thread: the solver's.
class NetOutputs final : public SolverObserver {
 public:
  // Training begins; times count from here.
  void Begin() { begin_ = std::chrono::steady_clock::now(); }
  void OnIteration(const IterationReport& report) override;
  void OnTest(const TestReport& report) override;
  void OnSnapshot(const SnapshotReport&) override {}
  void OnWeights(const WeightsReport&) override {}

  // The text of the file, the same on all `workers`, each of which calls this after the same reports. With one worker,
  // `collectives` may be null. Once. kInvalidArgument on all of them where their outputs have different counts of numbers.
  Result<std::string> Text(int workers, Collectives* collectives);

 private:
  struct Row {
    std::uint64_t iteration;
    double seconds;
    std::vector<double> numbers;  // the loss, then the outputs
  };
  struct Block {
    std::vector<std::string> names;
    std::vector<Row> rows;
  };
  Status AverageTraining(int workers, Collectives* collectives);
  Row RowOf(std::uint64_t iteration, double loss, const std::vector<OutputValue>& outputs) const;

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Block train_;
  std::vector<Block> tests_;  // by net
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_NET_OUTPUTS_H_
