// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_RUN_DIR_H_
#define POSEIDON_TOOLS_RUN_DIR_H_

#include "frontends/caffe/train/options.h"

namespace poseidon::tools {

// Makes the run directory, one named after the solver and the time where none is given. Fails with
// a sentence.
void MakeRunDir(caffe::TrainOptions& options);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_RUN_DIR_H_
