// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_PLACED_H_
#define POSEIDON_TOOLS_TRAIN_PLACED_H_

#include <optional>
#include <string>

#include "frontends/caffe/train/options.h"
#include "frontends/caffe/train/output.h"
#include "poseidon/place/place.h"

namespace poseidon::tools {

// Returns the place that this process's environment names, if it names one of several; ends the program with a sentence
// where the variables contradict each other.
std::optional<place::Place> OwnPlace();

// Trains as one of the processes that mpirun, srun or torchrun started: the last --servers of them
// are dedicated servers, the others workers. On one host they meet by files in a folder of this
// user in the system's temporary folder; on several at MASTER_ADDR:MASTER_PORT, or by a file beside
// `token_file`, which all hosts share. Fails with a sentence.
void RunPlaced(const place::Place& place, caffe::TrainOptions options,
               const std::string& token_file, caffe::Output& output);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_PLACED_H_
