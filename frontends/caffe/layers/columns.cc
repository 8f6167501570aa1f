// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/layers/columns.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

namespace poseidon::caffe {
namespace {

// at::constant_pad_nd lists axes from the last one on, both sides of each.
std::vector<std::int64_t> Padding(const Window& window) {
  std::vector<std::int64_t> padding;
  for (auto pad = window.pad.rbegin(); pad != window.pad.rend(); ++pad) padding.insert(padding.end(), {*pad, *pad});
  return padding;
}

// [N, C, kernel..., windows...] as a view of the padded image: a step in the kernel is `dilation` pixels, to the next window
// `stride`.
at::Tensor WindowView(const at::Tensor& padded, const Window& window, const Shape& windows) {
  const std::size_t axes = windows.size();
  Shape sizes = {padded.size(0), padded.size(1)};
  Shape strides = {padded.stride(0), padded.stride(1)};
  for (std::size_t i = 0; i < axes; ++i) {
    sizes.push_back(window.kernel[i]);
    strides.push_back(window.dilation[i] * padded.stride(static_cast<std::int64_t>(i) + 2));
  }
  for (std::size_t i = 0; i < axes; ++i) {
    sizes.push_back(windows[i]);
    strides.push_back(window.stride[i] * padded.stride(static_cast<std::int64_t>(i) + 2));
  }
  return padded.as_strided(sizes, strides, 0);
}

// [N, groups, rows / groups, columns] of a tensor [N, rows, columns...].
at::Tensor Grouped(const at::Tensor& tensor, std::int64_t groups) {
  return tensor.reshape({tensor.size(0), groups, tensor.size(1) / groups, CountOf(tensor.sizes().slice(2))});
}

// [groups, M / groups, C / groups * kernel] of a weight [M, C / groups, kernel...].
at::Tensor GroupedWeight(const at::Tensor& weight, std::int64_t groups) {
  return weight.view({groups, weight.size(0) / groups, CountOf(weight.sizes().slice(1))});
}

}  // namespace

at::Tensor AsBatch(const at::Tensor& blob, std::int64_t axis) {
  if (axis == 1) return blob;
  Shape shape = {CountOf(blob.sizes(), 0, axis)};
  shape.insert(shape.end(), blob.sizes().begin() + axis, blob.sizes().end());
  return blob.view(shape);
}

Result<Shape> WindowsOn(at::IntArrayRef spatial, const Window& window) {
  Shape windows;
  for (std::size_t i = 0; i < spatial.size(); ++i) {
    const std::int64_t extent = window.dilation[i] * (window.kernel[i] - 1) + 1;
    const std::int64_t room = spatial[i] + 2 * window.pad[i] - extent;
    if (room < 0) {
      return InvalidArgument("input of shape " + ShapeText(spatial) + " is smaller than kernel " + ShapeText(window.kernel));
    }
    windows.push_back(room / window.stride[i] + 1);
  }
  return windows;
}

at::Tensor ToColumns(const at::Tensor& image, const Window& window, const Shape& windows) {
  const at::Tensor padded = at::constant_pad_nd(image, Padding(window), 0).contiguous();
  Shape sizes = {image.size(0), image.size(1) * CountOf(window.kernel)};
  sizes.insert(sizes.end(), windows.begin(), windows.end());
  return WindowView(padded, window, windows).reshape(sizes);
}

at::Tensor FromColumns(const at::Tensor& columns, at::IntArrayRef image_shape, const Window& window, const Shape& windows) {
  const std::size_t axes = windows.size();
  Shape padded_shape = image_shape.vec();
  for (std::size_t i = 0; i < axes; ++i) padded_shape[i + 2] += 2 * window.pad[i];
  const at::Tensor padded = at::zeros(padded_shape, columns.options());
  at::Tensor to = WindowView(padded, window, windows);
  at::Tensor from = columns.reshape(to.sizes());
  // Windows overlap in memory: each place of the kernel is added by itself.
  const std::int64_t places = CountOf(window.kernel);
  for (std::int64_t place = 0; place < places; ++place) {
    at::Tensor target = to;
    at::Tensor part = from;
    std::int64_t rest = place;
    for (std::size_t i = axes; i-- > 0;) {
      const auto axis = static_cast<std::int64_t>(i) + 2;
      target = target.narrow(axis, rest % window.kernel[i], 1);
      part = part.narrow(axis, rest % window.kernel[i], 1);
      rest /= window.kernel[i];
    }
    target.add_(part);
  }
  at::Tensor image = padded;
  for (std::size_t i = 0; i < axes; ++i) {
    const auto axis = static_cast<std::int64_t>(i) + 2;
    image = image.narrow(axis, window.pad[i], image_shape[i + 2]);
  }
  return image.contiguous();
}

at::Tensor ConvolveColumns(const at::Tensor& image, const at::Tensor& weight, const Window& window, const Shape& windows,
                           std::int64_t groups) {
  Shape sizes = {image.size(0), weight.size(0)};
  sizes.insert(sizes.end(), windows.begin(), windows.end());
  return at::matmul(GroupedWeight(weight, groups), Grouped(ToColumns(image, window, windows), groups)).reshape(sizes);
}

at::Tensor TransposedColumns(const at::Tensor& image, const at::Tensor& weight, at::IntArrayRef to, const Window& window,
                             std::int64_t groups) {
  const Shape windows = image.sizes().slice(2).vec();
  const at::Tensor columns = at::matmul(GroupedWeight(weight, groups).transpose(1, 2), Grouped(image, groups));
  return FromColumns(columns, to, window, windows);
}

at::Tensor WeightGradient(const at::Tensor& image, const at::Tensor& gradient, at::IntArrayRef weight_shape,
                          const Window& window, std::int64_t groups) {
  const Shape windows = gradient.sizes().slice(2).vec();
  const at::Tensor columns = Grouped(ToColumns(image, window, windows), groups);
  return at::matmul(Grouped(gradient, groups), columns.transpose(2, 3)).sum(0).reshape(weight_shape);
}

}  // namespace poseidon::caffe
