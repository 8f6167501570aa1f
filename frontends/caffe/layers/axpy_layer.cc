// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/mul.h>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// a * x + y with a number of `a` for every channel of every image (SENet): bottoms a (N x C or N x C x 1 x 1), x and y.
class AxpyLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {3, 3, 1, 1}; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto a = bottom[0]->data.sizes();
    const auto x = bottom[1]->data.sizes();
    if (a.size() < 2 || x.size() < 2 || a[0] != x[0] || a[1] != x[1] || CountOf(a) != x[0] * x[1] || x != bottom[2]->data.sizes()) {
      return InvalidArgument("has bottoms of shape " + ShapeText(a) + ", " + ShapeText(x) + " and " +
                             ShapeText(bottom[2]->data.sizes()) + ", expected a number for each channel, and two of one shape");
    }
    view_ = {x[0] * x[1], CountOf(x, 2, static_cast<std::int64_t>(x.size()))};
    SetShape(top[0], x.vec(), options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    at::Tensor out = top[0]->data.view(view_);
    at::mul_out(out, bottom[1]->data.view(view_), bottom[0]->data.view({-1, 1}));
    out.add_(bottom[2]->data.view(view_));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    const at::Tensor gradient = top[0]->diff.view(view_);
    if (propagate_down[0]) {
      DiffOf(bottom[0]).copy_(gradient.mul(bottom[1]->data.view(view_)).sum(1).view(bottom[0]->data.sizes()));
    }
    if (propagate_down[1]) {
      at::Tensor diff = DiffOf(bottom[1]).view(view_);
      at::mul_out(diff, gradient, bottom[0]->data.view({-1, 1}));
    }
    if (propagate_down[2]) DiffOf(bottom[2]).copy_(top[0]->diff);
    return OkStatus();
  }

 private:
  Shape view_;  // images and channels, places
};

}  // namespace

std::unique_ptr<Layer> MakeAxpyLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<AxpyLayer>(param, context);
}

}  // namespace poseidon::caffe
