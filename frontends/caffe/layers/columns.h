// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_COLUMNS_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_COLUMNS_H_

#include <ATen/core/Tensor.h>

#include "frontends/caffe/layers/window.h"

// The windows of a convolution laid side by side, over any number of spatial axes (ATen's own stop at two, its
// convolutions at three). All tensors are contiguous: images [N, C, spatial...], columns [N, C * kernel..., windows...] with
// the windows of each axis in its place.
namespace poseidon::caffe {

// `blob` with everything before `axis`, that of the channels, as one axis.
at::Tensor AsBatch(const at::Tensor& blob, std::int64_t axis);

// How many windows there are on each axis; an input smaller than a window is an error.
Result<Shape> WindowsOn(at::IntArrayRef spatial, const Window& window);

at::Tensor ToColumns(const at::Tensor& image, const Window& window, const Shape& windows);
// The transpose of ToColumns: adds up what falls on the same pixel, in a fixed order.
at::Tensor FromColumns(const at::Tensor& columns, at::IntArrayRef image_shape, const Window& window, const Shape& windows);

// The convolution of `image` by weight [M, C / groups, kernel...], and its transpose, which ATen has no kernels for.
at::Tensor ConvolveColumns(const at::Tensor& image, const at::Tensor& weight, const Window& window, const Shape& windows,
                           std::int64_t groups);
at::Tensor TransposedColumns(const at::Tensor& image, const at::Tensor& weight, at::IntArrayRef to, const Window& window,
                             std::int64_t groups);
// The gradient of the weight of ConvolveColumns, from its image and the gradient of its result.
at::Tensor WeightGradient(const at::Tensor& image, const at::Tensor& gradient, at::IntArrayRef weight_shape,
                          const Window& window, std::int64_t groups);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_COLUMNS_H_
