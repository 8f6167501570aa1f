// SPDX-License-Identifier: Apache-2.0
// BN of forks: batch normalization, scale and shift in one layer. Two families use the name; their options tell them apart.
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "frontends/caffe/layers/channel_norm.h"
#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// Blob 0 multiplies what was normalized, blob 1 shifts it.
class BnLayer : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) final {
    const bool scale = WantsParamDiff(0), shift = WantsParamDiff(1);
    ChannelNorm::Gradients all = norm_.Backward(top[0]->diff, weight(0), {propagate_down[0], scale, shift});
    if (scale) AddParamDiff(0, all.factor);
    if (shift) AddParamDiff(1, all.term);
    if (propagate_down[0]) bottom[0]->diff = std::move(all.in);
    return OkStatus();
  }

 protected:
  // In Reshape.
  Status Follow(at::IntArrayRef sizes, double eps) {
    if (sizes.size() < 2 || sizes[1] != weight(0).numel()) {
      return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected " + std::to_string(weight(0).numel()) + " channels");
    }
    norm_.SetShape(sizes, eps);
    return OkStatus();
  }

  ChannelNorm norm_;
};

// SegNet's and ENet's: blobs are scale and shift, 1 x C x 1 x 1. In mode LEARN the statistics are those of the batch in
// both phases, and none are kept; further tops are the batch's mean and variance. In mode INFERENCE nothing is normalized:
// a script has folded the statistics into scale and shift.
class SegNetBnLayer final : public BnLayer {
 public:
  using BnLayer::BnLayer;
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
    POSEIDON_RETURN_IF_ERROR(Follow(sizes, learns() ? kEps : 0));
    for (std::size_t i = 1; i < top.size(); ++i) SetShape(top[i], {1, sizes[1], 1, 1}, options());
    return NeuronLayer::Reshape(bottom, top);
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    if (learns()) {
      const ChannelNorm::Statistics& batch = norm_.Measure(bottom[0]->data);
      if (top.size() > 1) top[1]->data.copy_(batch.mean.view(top[1]->data.sizes()));
      if (top.size() > 2) top[2]->data.copy_(batch.variance.view(top[2]->data.sizes()));
    } else {
      norm_.Use(bottom[0]->data, {at::zeros_like(weight(0)), at::ones_like(weight(0))});
    }
    top[0]->data = norm_.Forward(weight(0), weight(1));
    return OkStatus();
  }

 private:
  static constexpr double kEps = 1e-9;
  bool learns() const { return param().bn_param().bn_mode() == BNParameter::LEARN; }
};

// That of temporal segment networks and PSPNet: blobs are slope, bias, and the running mean and variance, 1 x C.
// Training normalizes with the batch's statistics and lets the running ones follow them: r = momentum * r + (1 - momentum)
// * batch, the variance biased. Testing uses the running ones; so does training with `frozen`, which learns nothing.
// BNData is the same; there the fork takes the statistics over all its workers' batches, here each worker takes those of its own.
class SlopeBnLayer final : public BnLayer {
 public:
  SlopeBnLayer(const LayerParameter& param, const LayerContext& context, double momentum)
      : BnLayer(param, context), momentum_(param.bn_param().has_momentum() ? static_cast<double>(param.bn_param().momentum()) : momentum) {}
  bool is_statistic(int index) const override { return index >= 2; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    if (bottom[0]->data.dim() < 2) return InvalidArgument("expected a bottom of two axes or more");
    const auto& options = param().bn_param();
    const std::int64_t channels = bottom[0]->data.size(1);
    FillerParameter mean;
    FillerParameter variance;
    variance.set_value(options.frozen() ? 1 : 0);
    DeclareParam({1, channels}, options.has_scale_filler() ? options.scale_filler() : options.slope_filler());
    DeclareParam({1, channels}, options.has_shift_filler() ? options.shift_filler() : options.bias_filler());
    DeclareParam({1, channels}, mean);
    DeclareParam({1, channels}, variance);
    for (int i = options.frozen() ? 0 : 2; i < 4; ++i) FreezeParam(i);
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_RETURN_IF_ERROR(Follow(bottom[0]->data.sizes(), static_cast<double>(param().bn_param().eps())));
    return NeuronLayer::Reshape(bottom, top);
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    if (measures()) {
      const ChannelNorm::Statistics& batch = norm_.Measure(bottom[0]->data);
      const double fresh = 1 - momentum_;
      weight(2).lerp_(batch.mean, fresh);
      weight(3).lerp_(batch.variance, fresh);
    } else {
      norm_.Use(bottom[0]->data, {weight(2), weight(3)});
    }
    top[0]->data = norm_.Forward(weight(0), weight(1));
    return OkStatus();
  }

 private:
  bool measures() const { return phase() == TRAIN && !param().bn_param().frozen(); }

  const double momentum_;
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
  return std::make_unique<SlopeBnLayer>(param, context, static_cast<double>(options.momentum()));
}

// The fork's two versions call the fillers slope and bias, and scale and shift.
std::unique_ptr<Layer> MakeBnDataLayer(const LayerParameter& param, const LayerContext& context) {
  if (param.bn_param().has_bn_mode()) return std::make_unique<UnknownBnLayer>(param, context);
  return std::make_unique<SlopeBnLayer>(param, context, /*momentum=*/0.95);
}

}  // namespace poseidon::caffe
