// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_RUN_DIR_H_
#define POSEIDON_TOOLS_TRAIN_RUN_DIR_H_

#include "frontends/caffe/train/options.h"

namespace poseidon::tools {

// Makes the run directory, one named after the solver and the time where none is given, and tries to write in
// it. Results of an earlier run that it holds move to earlier/N in it, so that no run's files are mixed with another's
// or replaced. Fails with a sentence.
void MakeRunDir(caffe::TrainOptions& options);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_RUN_DIR_H_
