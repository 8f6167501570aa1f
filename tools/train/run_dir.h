// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_RUN_DIR_H_
#define POSEIDON_TOOLS_TRAIN_RUN_DIR_H_

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontends/caffe/train/options.h"

namespace poseidon::tools {

// A run's directory. A run that leaves no result in it, because it was refused, leaves it as it was: what this object made goes
// again with it, and the results of an earlier run come back.
class RunDir {
 public:
  // Makes the run directory, one named after the solver and the time where none is given, and tries to write in
  // it. Results of an earlier run that it holds move to earlier/N in it, so that no run's files are mixed with another's
  // or replaced. Fails with a sentence.
  static std::unique_ptr<RunDir> Make(caffe::TrainOptions& options);
  ~RunDir();
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;

 private:
  explicit RunDir(std::string folder) : folder_(std::move(folder)) {}
  void PutAsideEarlierRun();

  std::string folder_;
  std::vector<std::filesystem::path> made_;  // folders, each in the one before
  std::filesystem::path aside_;              // where results of an earlier run are; empty: there were none
};

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_RUN_DIR_H_
