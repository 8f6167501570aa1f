// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_MAX_POOLING_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_MAX_POOLING_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace poseidon::caffe {

// Windows that slide over a plane, height before width; `pad` pixels before each axis are in no window.
struct PaddedWindows {
  std::array<std::int64_t, 2> kernel, stride, pad;
};

// The largest number of each window of images [N, C, H, W], float or double, whose planes have fewer than 2^31 pixels: into `top`, and
// into `winner` its index in the plane. Of equal numbers the first wins, and a NaN over all. Tensors are contiguous, and every window has a
// pixel. The numbers are those of at::max_pool2d_with_indices, in about a quarter of its time.
void MaxOfWindows(const at::Tensor& image, const PaddedWindows& windows, const at::Tensor& top, const at::Tensor& winner);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_MAX_POOLING_H_
