// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LOGS_CSV_H_
#define POSEIDON_TOOLS_LOGS_CSV_H_

#include <string>
#include <vector>

#include "tools/logs/training_log.h"

namespace poseidon::logs {

// A number as Python writes it: the shortest digits that are read back as the same double.
std::string PythonNumber(double value);

// The rows as parse_log.py writes them, with its line ends: NumIters, Seconds, LearningRate and a column for every output, in the
// order in which outputs first came. Cells of outputs that a row does not have are empty. Empty without rows.
std::string Csv(const std::vector<Row>& rows, char delimiter);

}  // namespace poseidon::logs

#endif  // POSEIDON_TOOLS_LOGS_CSV_H_
