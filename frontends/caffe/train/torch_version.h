// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_TORCH_VERSION_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_TORCH_VERSION_H_

#include "poseidon/base/status.h"

namespace poseidon::caffe {

// Whether the torch whose libraries this process has loaded has the minor version that this was built with;
// kUnavailable naming both where it has another one: a tensor would have another layout on either side. Makes no tensor.
Status TorchFits();

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_TORCH_VERSION_H_
