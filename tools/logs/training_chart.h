// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LOGS_TRAINING_CHART_H_
#define POSEIDON_TOOLS_LOGS_TRAINING_CHART_H_

#include <string>
#include <vector>

#include "poseidon/base/result.h"
#include "tools/draw/chart.h"

namespace poseidon::logs {

// The number of chart types of Caffe's plot_training_log.py.
inline constexpr int kChartTypes = 8;

// "Test accuracy vs. Iters" for 0, as Caffe names and numbers them.
std::string ChartName(int type);

// The chart of that type with a line for every log, or several where a log has several accuracies or losses of tests. A test's
// accuracies are its outputs with "acc" or "top" in the last part of their names, its losses the others with "loss" there; where no
// name says which is which, the first output is the accuracy and the second the loss, as in Caffe's script.
// Fails naming the log that cannot be read or has nothing to show.
Result<draw::Chart> MakeChart(int type, const std::vector<std::string>& logs);

}  // namespace poseidon::logs

#endif  // POSEIDON_TOOLS_LOGS_TRAINING_CHART_H_
