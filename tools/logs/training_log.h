// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LOGS_TRAINING_LOG_H_
#define POSEIDON_TOOLS_LOGS_TRAINING_LOG_H_

#include <string>
#include <utility>
#include <vector>

#include "poseidon/base/result.h"

namespace poseidon::logs {

// One number in the course of a training run. Seconds count from its beginning.
struct Sample {
  double iteration = 0;
  double seconds = 0;
  double value = 0;
};

// All outputs of a net at an iteration, as Caffe's parse_log.py makes a row of them.
struct Row {
  double iteration = 0;
  double seconds = 0;
  double rate = 0;  // the newest learning rate, NaN before the first
  std::vector<std::pair<std::string, double>> outputs;  // by name, in the order in which they first came
};

// What a training run said of itself.
struct TrainingLog {
  std::vector<Row> train;
  std::vector<Row> test;
  std::vector<Sample> losses;   // of displayed iterations, smoothed as it is shown
  std::vector<Sample> rates;
  std::vector<double> seconds;  // of every line that names an iteration
};

// Reads a log of Caffe's, whether it or our trainer wrote it, alone or among other lines, or a metrics.jsonl of ours. Rows are
// those of BVLC Caffe's tools/extra/parse_log.py, but that a log of a single display or test has its row too. Lines that are neither
// are passed over, as are numbers that are none. An output of several numbers is its last one, as there.
// kInvalidArgument naming the file where it is no log of training.
Result<TrainingLog> ReadTrainingLog(const std::string& path);

}  // namespace poseidon::logs

#endif  // POSEIDON_TOOLS_LOGS_TRAINING_LOG_H_
