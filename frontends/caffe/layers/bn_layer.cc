// SPDX-License-Identifier: Apache-2.0
// BN of forks: batch normalization, scale and shift in one layer. Two families use the name; their options tell them apart.
#include <ATen/ops/mul.h>

#include "frontends/caffe/layers/channel_norm.h"
#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// SegNet's and ENet's: blobs are scale and shift, 1 x C x 1 x 1. In mode LEARN the statistics are those of the batch in
// both phases, and none are kept; further tops are the batch's mean and variance. In mode INFERENCE nothing is normalized:
// a script has folded the statistics into scale and shift.
class SegNetBnLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;
  Arity arity() const override { return {1, 1, 1, 3}; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    if (bottom[0]->data.dim() < 2) return InvalidArgument("expected a bottom of two axes or more");
    const std::int64_t channels = bottom[0]->data.size(1);
    DeclareParam({1, channels, 1, 1}, param().bn_param().scale_filler());
    DeclareParam({1, channels, 1, 1}, param().bn_param().shift_filler());
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    if (sizes.size() < 2 || sizes[1] != weight(0).numel()) {
      return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected " + std::to_string(weight(0).numel()) + " channels");
    }
    norm_.SetShape(sizes);
    for (std::size_t i = 1; i < top.size(); ++i) SetShape(top[i], {1, sizes[1], 1, 1}, options());
    return NeuronLayer::Reshape(bottom, top);
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    if (learns()) {
      const ChannelNorm::Statistics statistics = norm_.Measure(bottom[0]->data);
      input_ = norm_.Normalize(bottom[0]->data, statistics, kEps);
      if (top.size() > 1) top[1]->data.copy_(statistics.mean.view(top[1]->data.sizes()));
      if (top.size() > 2) top[2]->data.copy_(statistics.variance.view(top[2]->data.sizes()));
    } else {
      input_ = top[0] == bottom[0] ? bottom[0]->data.clone() : bottom[0]->data;
    }
    top[0]->data.copy_(norm_.Scale(input_, weight(0), weight(1)));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    const at::Tensor& gradient = top[0]->diff;
    if (WantsParamDiff(0)) AddParamDiff(0, norm_.Sum(gradient.mul(input_)));
    if (WantsParamDiff(1)) AddParamDiff(1, norm_.Sum(gradient));
    if (!propagate_down[0]) return OkStatus();
    const at::Tensor scaled = norm_.Scale(gradient, weight(0));
    DiffOf(bottom[0]).copy_(learns() ? norm_.Backward(scaled, /*measured=*/true) : scaled);
    return OkStatus();
  }

 private:
  static constexpr double kEps = 1e-9;
  bool learns() const { return param().bn_param().bn_mode() == BNParameter::LEARN; }

  ChannelNorm norm_;
  at::Tensor input_;  // of scale and shift; kept, as a layer above may work in place on the top
};

// That of temporal segment networks and PSPNet: blobs are slope, bias, and the running mean and variance, 1 x C.
// Training normalizes with the batch's statistics and lets the running ones follow them: r = momentum * r + (1 - momentum)
// * batch, the variance biased. Testing uses the running ones; so does training with `frozen`, which learns nothing.
class SlopeBnLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;
  bool is_statistic(int index) const override { return index >= 2; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    if (bottom[0]->data.dim() < 2) return InvalidArgument("expected a bottom of two axes or more");
    const auto& options = param().bn_param();
    const std::int64_t channels = bottom[0]->data.size(1);
    FillerParameter mean;
    FillerParameter variance;
    variance.set_value(options.frozen() ? 1 : 0);
    DeclareParam({1, channels}, options.slope_filler());
    DeclareParam({1, channels}, options.bias_filler());
    DeclareParam({1, channels}, mean);
    DeclareParam({1, channels}, variance);
    for (int i = options.frozen() ? 0 : 2; i < 4; ++i) FreezeParam(i);
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    if (sizes.size() < 2 || sizes[1] != weight(0).numel()) {
      return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected " + std::to_string(weight(0).numel()) + " channels");
    }
    norm_.SetShape(sizes);
    return NeuronLayer::Reshape(bottom, top);
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    ChannelNorm::Statistics statistics = {weight(2), weight(3)};
    if (measures()) {
      statistics = norm_.Measure(bottom[0]->data);
      const double fresh = 1 - static_cast<double>(param().bn_param().momentum());
      weight(2).lerp_(statistics.mean, fresh);
      weight(3).lerp_(statistics.variance, fresh);
    }
    const at::Tensor normalized =
        norm_.Normalize(bottom[0]->data, statistics, static_cast<double>(param().bn_param().eps()));
    top[0]->data.copy_(norm_.Scale(normalized, weight(0), weight(1)));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    const at::Tensor& gradient = top[0]->diff;
    if (WantsParamDiff(0)) AddParamDiff(0, norm_.Sum(gradient.mul(norm_.normalized())));
    if (WantsParamDiff(1)) AddParamDiff(1, norm_.Sum(gradient));
    if (propagate_down[0]) DiffOf(bottom[0]).copy_(norm_.Backward(norm_.Scale(gradient, weight(0)), measures()));
    return OkStatus();
  }

 private:
  bool measures() const { return phase() == TRAIN && !param().bn_param().frozen(); }

  ChannelNorm norm_;
};

// Neither: it cannot be told which BN is meant, and scale and shift would begin at 0 in both.
class UnknownBnLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;
  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    return InvalidArgument("bn_param does not say which BN is meant: expected either scale_filler, shift_filler or bn_mode (SegNet, "
                           "ENet), or slope_filler, bias_filler, momentum, eps or frozen (temporal segment networks, PSPNet)");
  }
  Status Forward(const Blobs& /*bottom*/, const Blobs& /*top*/) override { return OkStatus(); }
};

}  // namespace

std::unique_ptr<Layer> MakeBnLayer(const LayerParameter& param, const LayerContext& context) {
  const BNParameter& options = param.bn_param();
  const bool segnet = options.has_scale_filler() || options.has_shift_filler() || options.has_bn_mode();
  const bool slope = options.has_slope_filler() || options.has_bias_filler() || options.has_momentum() || options.has_eps() ||
                     options.has_frozen();
  if (segnet == slope) return std::make_unique<UnknownBnLayer>(param, context);
  if (segnet) return std::make_unique<SegNetBnLayer>(param, context);
  return std::make_unique<SlopeBnLayer>(param, context);
}

}  // namespace poseidon::caffe
