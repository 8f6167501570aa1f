// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/col2im.h>
#include <ATen/ops/im2col.h>

#include "frontends/caffe/layers/window.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Lays the windows that a convolution would see side by side: channels times kernel elements by
// output height by output width.
class Im2colLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    if (bottom[0]->data.dim() != 4 || param().convolution_param().axis() != 1) {
      return Unimplemented("works on four axes with channels on axis 1, bottom has shape " +
                           ShapeText(bottom[0]->data.sizes()));
    }
    POSEIDON_ASSIGN_OR_RETURN(window_, ReadWindow(param().convolution_param(), 2));
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const Shape from = bottom[0]->shape();
    Shape to = {from[0], from[1] * window_.kernel[0] * window_.kernel[1], 0, 0};
    for (std::size_t i = 0; i < 2; ++i) {
      const std::int64_t extent = window_.dilation[i] * (window_.kernel[i] - 1) + 1;
      const std::int64_t room = from[2 + i] + 2 * window_.pad[i] - extent;
      if (room < 0) {
        return InvalidArgument("input of shape " + ShapeText(from) + " is smaller than kernel " +
                               ShapeText(window_.kernel));
      }
      to[2 + i] = room / window_.stride[i] + 1;
    }
    SetShape(top[0], to, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    top[0]->data.copy_(at::im2col(bottom[0]->data, window_.kernel, window_.dilation, window_.pad,
                                  window_.stride)
                           .view(top[0]->data.sizes()));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const auto sizes = top[0]->diff.sizes();
    bottom[0]->diff = at::col2im(top[0]->diff.view({sizes[0], sizes[1], -1}),
                                 bottom[0]->data.sizes().slice(2), window_.kernel,
                                 window_.dilation, window_.pad, window_.stride);
    return OkStatus();
  }

 private:
  Window window_;
};

}  // namespace

std::unique_ptr<Layer> MakeIm2colLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<Im2colLayer>(param, context);
}

}  // namespace poseidon::caffe
