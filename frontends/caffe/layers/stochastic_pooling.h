// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_STOCHASTIC_POOLING_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_STOCHASTIC_POOLING_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "frontends/caffe/net/random.h"

// Stochastic pooling (Zeiler and Fergus, "Stochastic Pooling for Regularization of Deep Convolutional Neural Networks",
// 2013) as Caffe computes it. It is meant for numbers of 0 and above, behind a ReLU. Images [N, C, H, W], float or double and
// contiguous; windows begin in the image and end with it; there is no padding.
namespace poseidon::caffe {

struct PlaneWindows {
  std::array<std::int64_t, 2> kernel;  // height, width
  std::array<std::int64_t, 2> stride;
};

// Training: of each window the first number at which the sum so far reaches u times the sum of all, u uniform in (0, 1]:
// number x is drawn with probability x / sum. `chosen` gets its index in the plane, as of a maximum. u is word j of the stream's sample
// `first_row` + n for element j of image n of `top`.
void DrawFromWindows(const at::Tensor& image, const PlaneWindows& windows, const RandomStream& stream, std::uint64_t first_row,
                     const at::Tensor& top, const at::Tensor& chosen);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_STOCHASTIC_POOLING_H_
