// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/col2im.h>
#include <ATen/ops/im2col.h>

#include "frontends/caffe/layers/columns.h"
#include "frontends/caffe/layers/window.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Lays the windows that a convolution would see side by side, over any number of spatial axes: channels times kernel
// elements by the windows on each axis.
class Im2colLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    const std::int64_t axes = bottom[0]->data.dim();
    POSEIDON_RETURN_IF_ERROR(CanonicalAxis("axis", param().convolution_param().axis(), axes, &axis_));
    if (axes - axis_ < 2) {
      return InvalidArgument("has no spatial axis behind axis " + std::to_string(axis_) + " of shape " +
                             ShapeText(bottom[0]->data.sizes()));
    }
    POSEIDON_ASSIGN_OR_RETURN(window_, ReadWindow(param().convolution_param(), axes - axis_ - 1));
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const Shape from = bottom[0]->shape();
    const auto channels = static_cast<std::size_t>(axis_);
    POSEIDON_ASSIGN_OR_RETURN(windows_, WindowsOn(at::IntArrayRef(from).slice(channels + 1), window_));
    Shape to(from.begin(), from.begin() + axis_ + 1);
    for (const std::int64_t extent : window_.kernel) to[channels] *= extent;
    to.insert(to.end(), windows_.begin(), windows_.end());
    SetShape(top[0], to, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const at::Tensor image = AsBatch(bottom[0]->data, axis_);
    const at::Tensor columns =
        is_plane() ? at::im2col(image, window_.kernel, window_.dilation, window_.pad, window_.stride)
                   : ToColumns(image, window_, windows_);
    top[0]->data.copy_(columns.view(top[0]->data.sizes()));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const at::Tensor columns = AsBatch(top[0]->diff, axis_);
    const at::Tensor image = AsBatch(bottom[0]->data, axis_);
    const at::Tensor diff =
        is_plane() ? at::col2im(columns.flatten(2), image.sizes().slice(2), window_.kernel, window_.dilation, window_.pad,
                                window_.stride)
                   : FromColumns(columns, image.sizes(), window_, windows_);
    bottom[0]->diff = diff.view(bottom[0]->data.sizes());
    return OkStatus();
  }

 private:
  bool is_plane() const { return windows_.size() == 2; }

  std::int64_t axis_ = 1;
  Window window_;
  Shape windows_;
};

}  // namespace

std::unique_ptr<Layer> MakeIm2colLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<Im2colLayer>(param, context);
}

}  // namespace poseidon::caffe
