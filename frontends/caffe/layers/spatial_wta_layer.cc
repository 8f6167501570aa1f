// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include <array>

#include "frontends/caffe/layers/max_pooling.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// The winner takes all: of each window, or with global_wta of each plane, the number of the largest amount stays and the others are 0. A second
// top has 1 where a number stays.
class SpatialWtaLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {1, 1, 1, 2}; }
  bool computes_on_device() const override { return false; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const SpatialWtaParameter& options = param().spatial_wta_param();
    const bool sides = options.has_kernel_h() && options.has_kernel_w();
    if (options.global_wta()) {
      if (options.has_kernel_size() || options.has_kernel_h() || options.has_kernel_w() || options.has_stride() || options.has_stride_h()) {
        return InvalidArgument("has global_wta and windows, expected one of them");
      }
      return OkStatus();
    }
    if (options.has_kernel_size() == sides) return InvalidArgument("needs global_wta, kernel_size, or kernel_h and kernel_w");
    if (options.has_stride_h() != options.has_stride_w()) return InvalidArgument("needs either stride, or stride_h and stride_w");
    windows_.kernel = sides ? Extents{options.kernel_h(), options.kernel_w()} : Extents{options.kernel_size(), options.kernel_size()};
    windows_.stride = options.has_stride_h() ? Extents{options.stride_h(), options.stride_w()} : Extents{options.stride(), options.stride()};
    for (const Extents& numbers : {windows_.kernel, windows_.stride}) {
      if (numbers[0] == 0 || numbers[1] == 0) return InvalidArgument("needs a kernel size and a stride above 0");
    }
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    if (sizes.size() != 4) return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected images: four axes");
    if (param().spatial_wta_param().global_wta()) windows_ = {{sizes[2], sizes[3]}, {1, 1}, {0, 0}};
    Shape windows = {sizes[0], sizes[1], 0, 0};
    for (std::size_t i = 0; i < 2; ++i) {
      const std::int64_t room = sizes[2 + i] - windows_.kernel[i];
      if (room < 0) return InvalidArgument("bottom of shape " + ShapeText(sizes) + " is smaller than kernel " + ShapeText(windows_.kernel));
      windows[2 + i] = room / windows_.stride[i] + 1;
    }
    largest_ = at::empty(windows, options());
    winner_ = at::empty(windows, options().dtype(at::kLong));
    for (Blob* blob : top) SetShape(blob, sizes.vec(), options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    MaxOfWindows(bottom[0]->data.abs(), windows_, largest_, winner_);
    const Shape planes = {sizes[0] * sizes[1], sizes[2] * sizes[3]};
    stays_ = at::zeros(planes, options()).scatter_(1, winner_.view({planes[0], -1}), 1).view(sizes);
    at::mul_out(top[0]->data, bottom[0]->data, stays_);
    if (top.size() > 1) top[1]->data.copy_(stays_);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (propagate_down[0]) at::mul_out(DiffOf(bottom[0]), top[0]->diff, stays_);
    return OkStatus();
  }

 private:
  using Extents = std::array<std::int64_t, 2>;
  PaddedWindows windows_{};
  at::Tensor largest_, winner_, stays_;
};

}  // namespace

std::unique_ptr<Layer> MakeSpatialWtaLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<SpatialWtaLayer>(param, context);
}

}  // namespace poseidon::caffe
