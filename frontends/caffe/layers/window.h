// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_WINDOW_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_WINDOW_H_

#include <cstdint>

#include "frontends/caffe/net/layer.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// The sliding window of a convolution, one number per spatial axis.
struct Window {
  Shape kernel;
  Shape stride;
  Shape pad;
  Shape dilation;
};

// Reads `options` for `axes` spatial axes: each list has one entry for all or one per axis, the
// *_h and *_w forms are for two axes, and may not be mixed with the lists.
Result<Window> ReadWindow(const ConvolutionParameter& options, std::int64_t axes);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_WINDOW_H_
