// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_MEMORY_DATA_LAYER_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_MEMORY_DATA_LAYER_H_

#include <ATen/core/Tensor.h>

#include "poseidon/base/status.h"

namespace poseidon::caffe {

// The side of a MemoryData layer that a program fills: whoever finds a layer that is one (dynamic_cast) may.
class MemoryData {
 public:
  virtual ~MemoryData() = default;
  // The next passes take batches of these from the beginning, and begin anew behind the last: data [n, channels, height,
  // width] and labels [n], contiguous, of the net's dtype, n a multiple of the batch size. Their numbers are not copied.
  // kInvalidArgument in a sentence where they do not fit.
  virtual Status SetArrays(at::Tensor data, at::Tensor labels) = 0;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_MEMORY_DATA_LAYER_H_
