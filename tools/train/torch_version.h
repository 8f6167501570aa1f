// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_TORCH_VERSION_H_
#define POSEIDON_TOOLS_TRAIN_TORCH_VERSION_H_

#include "poseidon/base/status.h"

namespace poseidon::tools {

// Whether the torch whose libraries this process has loaded has the minor version that the program was built with;
// kUnavailable naming both where it has another one: a tensor would have another layout on either side. Makes no tensor.
Status TorchFits();

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_TORCH_VERSION_H_
