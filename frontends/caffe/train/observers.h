// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_OBSERVERS_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_OBSERVERS_H_

#include <string>
#include <vector>

#include "frontends/caffe/solver/observer.h"

namespace poseidon::caffe {

// Several observers of one solver, told in the order in which they were added. Lifetime: they outlive this.
class Observers final : public SolverObserver {
 public:
  void Add(SolverObserver* observer) { all_.push_back(observer); }

  void OnIteration(const IterationReport& report) override {
    for (SolverObserver* const one : all_) one->OnIteration(report);
  }
  void OnTestBegin(std::uint64_t iteration, int net) override {
    for (SolverObserver* const one : all_) one->OnTestBegin(iteration, net);
  }
  void OnTest(const TestReport& report) override {
    for (SolverObserver* const one : all_) one->OnTest(report);
  }
  void OnSnapshotBegin() override {
    for (SolverObserver* const one : all_) one->OnSnapshotBegin();
  }
  void OnSnapshot(const SnapshotReport& report) override {
    for (SolverObserver* const one : all_) one->OnSnapshot(report);
  }
  void OnWeights(const WeightsReport& report) override {
    for (SolverObserver* const one : all_) one->OnWeights(report);
  }
  void OnNote(const std::string& sentence) override {
    for (SolverObserver* const one : all_) one->OnNote(sentence);
  }
  void OnDebugLine(const std::string& line) override {
    for (SolverObserver* const one : all_) one->OnDebugLine(line);
  }
  void OnNotFinite(const std::string& sentence) override {
    for (SolverObserver* const one : all_) one->OnNotFinite(sentence);
  }

 private:
  std::vector<SolverObserver*> all_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_OBSERVERS_H_
