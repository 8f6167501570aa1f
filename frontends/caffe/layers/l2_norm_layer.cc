// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/div.h>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// x / (|x| + eps) for every row (FaceNet's ports), or for the channels at every place (Norm of 3D normals and poses). Their backward
// passes have eps elsewhere; here it is the gradient.
class L2NormLayer final : public Layer {
 public:
  L2NormLayer(const LayerParameter& param, const LayerContext& context, bool by_place, double eps)
      : Layer(param, context), by_place_(by_place), eps_(eps) {}
  Arity arity() const override { return {}; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    if (sizes.empty()) return InvalidArgument("bottom is a scalar, expected rows");
    if (by_place_ && sizes.size() < 2) return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected channels");
    const auto axes = static_cast<std::int64_t>(sizes.size());
    view_ = by_place_ ? Shape{sizes[0], sizes[1], CountOf(sizes, 2, axes)} : Shape{sizes[0], CountOf(sizes, 1, axes), 1};
    SetShape(top[0], sizes.vec(), options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const at::Tensor in = bottom[0]->data.view(view_);
    length_ = in.mul(in).sum(at::IntArrayRef({1}), /*keepdim=*/true).sqrt_();
    divisor_ = length_.add(eps_);
    at::Tensor out = top[0]->data.view(view_);
    at::div_out(out, in, divisor_);
    return OkStatus();
  }

  // With s = |x| + eps: dx = dy / s - x (x dy) / (|x| s^2); a row of zeros has the first term alone.
  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const at::Tensor in = bottom[0]->data.view(view_);
    const at::Tensor gradient = top[0]->diff.view(view_);
    const at::Tensor along = in.mul(gradient).sum(at::IntArrayRef({1}), /*keepdim=*/true);
    const at::Tensor safe = length_.masked_fill(length_.eq(0), 1);
    DiffOf(bottom[0]).view(view_).copy_(gradient.sub(in.mul(along.div_(safe.mul(divisor_)))).div_(divisor_));
    return OkStatus();
  }

 private:
  const bool by_place_;
  const double eps_;
  Shape view_;  // of vectors along the middle axis
  at::Tensor length_, divisor_;
};

}  // namespace

std::unique_ptr<Layer> MakeL2NormLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<L2NormLayer>(param, context, /*by_place=*/false, static_cast<double>(param.l2norm_param().eps()));
}

std::unique_ptr<Layer> MakeNormLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<L2NormLayer>(param, context, /*by_place=*/true, /*eps=*/1e-6);
}

}  // namespace poseidon::caffe
