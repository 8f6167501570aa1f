// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/mul.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// scale * x / sqrt(sum of x^2 + eps), the sum over an image's channels at one place or, across_spatial, over the whole image; the
// scale is learned, one number or one for each channel (SSD's norm_param).
//
// SSD's own backward pass multiplies by the channels' scales last, where the sum should have them inside: the gradient only
// where all scales are equal. Here it is the gradient.
class NormalizeLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    if (bottom[0]->data.dim() < 2) {
      return InvalidArgument("bottom has shape " + ShapeText(bottom[0]->data.sizes()) + ", expected two axes or more");
    }
    FillerParameter filler = param().norm_param().scale_filler();
    if (!param().norm_param().has_scale_filler()) filler.set_value(1);
    DeclareParam(shared() ? Shape{} : Shape{bottom[0]->data.size(1)}, filler);
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    if (sizes.size() < 2 || (!shared() && sizes[1] != weight(0).numel())) {
      return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected " + std::to_string(weight(0).numel()) + " channels");
    }
    view_ = {sizes[0], sizes[1], CountOf(sizes, 2, static_cast<std::int64_t>(sizes.size()))};
    return NeuronLayer::Reshape(bottom, top);
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const at::Tensor in = bottom[0]->data.view(view_);
    norm_ = SumOver(in.mul(in)).add_(static_cast<double>(param().norm_param().eps())).sqrt_();
    normalized_ = in.div(norm_);  // kept: the layer may work in place
    at::Tensor out = top[0]->data.view(view_);
    at::mul_out(out, normalized_, Scale());
    return OkStatus();
  }

  // With u = x / n: du = (g - u * sum(u * g)) / n, where g is the gradient of u.
  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    const at::Tensor gradient = top[0]->diff.view(view_);
    if (WantsParamDiff(0)) {
      const at::Tensor terms = gradient.mul(normalized_);
      AddParamDiff(0, shared() ? terms.sum() : terms.sum(at::IntArrayRef({0, 2})));
    }
    if (!propagate_down[0]) return OkStatus();
    const at::Tensor scaled = gradient.mul(Scale());
    const at::Tensor along = SumOver(scaled.mul(normalized_));
    DiffOf(bottom[0]).view(view_).copy_(scaled.sub_(normalized_.mul(along)).div_(norm_));
    return OkStatus();
  }

 private:
  bool shared() const { return param().norm_param().channel_shared(); }
  at::Tensor Scale() { return weight(0).view({1, -1, 1}); }
  at::Tensor SumOver(const at::Tensor& terms) const {
    return param().norm_param().across_spatial() ? terms.sum(at::IntArrayRef({1, 2}), /*keepdim=*/true)
                                                 : terms.sum(at::IntArrayRef({1}), /*keepdim=*/true);
  }

  Shape view_;  // images, channels, places
  at::Tensor norm_;
  at::Tensor normalized_;
};

}  // namespace

std::unique_ptr<Layer> MakeNormalizeLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<NormalizeLayer>(param, context);
}

}  // namespace poseidon::caffe
