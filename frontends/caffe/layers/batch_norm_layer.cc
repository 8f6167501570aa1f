// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/mul.h>

#include "frontends/caffe/layers/channel_norm.h"
#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// (x - mean) / sqrt(variance + eps) per channel, without scale and shift (the Scale layer does
// that). In training the statistics are those of the batch, and running sums of them are kept:
// blobs 0 and 1 decay by moving_average_fraction and take the batch's mean and unbiased variance,
// blob 2 counts them the same way; blob 0 / blob 2 and blob 1 / blob 2 serve when testing.
class BatchNormLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;
  bool is_statistic(int /*index*/) const override { return true; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    const auto& options = param().batch_norm_param();
    if (bottom[0]->data.dim() < 2) {
      return InvalidArgument("bottom has shape " + ShapeText(bottom[0]->data.sizes()) +
                             ", expected two axes or more");
    }
    for (const ParamSpec& spec : param().param()) {
      if (spec.lr_mult() != 0) {
        return InvalidArgument("its statistics are not trained: param { lr_mult: 0 } expected");
      }
    }
    channels_ = bottom[0]->data.size(1);
    uses_running_ =
        options.has_use_global_stats() ? options.use_global_stats() : phase() == TEST;
    const FillerParameter zero;
    DeclareParam({channels_}, zero);
    DeclareParam({channels_}, zero);
    DeclareParam({1}, zero);
    for (int i = 0; i < 3; ++i) FreezeParam(i);
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    if (sizes.size() < 2 || sizes[1] != channels_) {
      return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected " +
                             std::to_string(channels_) + " channels");
    }
    view_ = {sizes[0], channels_, CountOf(sizes, 2, bottom[0]->data.dim())};
    return NeuronLayer::Reshape(bottom, top);
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const at::Tensor in = bottom[0]->data.view(view_);
    at::Tensor centred;
    at::Tensor variance;
    if (uses_running_) {
      const double count = weight(2).item<double>();
      const double scale = count == 0 ? 0 : 1 / count;
      centred = in.sub(Spread(weight(0).mul(scale)));
      variance = weight(1).mul(scale);
    } else {
      const at::Tensor mean = in.mean(at::IntArrayRef({0, 2}));
      centred = in.sub(Spread(mean));
      variance = centred.mul(centred).mean(at::IntArrayRef({0, 2}));
      Remember(mean, variance);
    }
    deviation_ = variance.add(static_cast<double>(param().batch_norm_param().eps())).sqrt_();
    // Kept: a layer above may work in place on the top.
    normalized_ = centred.div_(Spread(deviation_));
    top[0]->data.view(view_).copy_(normalized_);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const at::Tensor gradient = top[0]->diff.view(view_);
    at::Tensor result = gradient;
    if (!uses_running_) {
      // The batch's mean and variance moved with x: their share of the gradient is taken out.
      const at::Tensor mean = gradient.mean(at::IntArrayRef({0, 2}));
      const at::Tensor along = gradient.mul(normalized_).mean(at::IntArrayRef({0, 2}));
      result = gradient.sub(Spread(mean)).sub_(normalized_.mul(Spread(along)));
    }
    DiffOf(bottom[0]).view(view_).copy_(result.div(Spread(deviation_)));
    return OkStatus();
  }

 private:
  void Remember(const at::Tensor& mean, const at::Tensor& variance) {
    const auto fraction =
        static_cast<double>(param().batch_norm_param().moving_average_fraction());
    const double count = static_cast<double>(view_[0] * view_[2]);
    weight(2).mul_(fraction).add_(1);
    weight(0).mul_(fraction).add_(mean);
    weight(1).mul_(fraction).add_(variance, count > 1 ? count / (count - 1) : 1.0);
  }
  at::Tensor Spread(const at::Tensor& channels) const {
    return channels.view({1, channels_, 1});
  }

  std::int64_t channels_ = 0;
  bool uses_running_ = false;
  Shape view_;  // batch, channels, the rest
  at::Tensor deviation_;
  at::Tensor normalized_;
};

}  // namespace

std::unique_ptr<Layer> MakeBatchNormLayer(const LayerParameter& param,
                                          const LayerContext& context) {
  if (AsksForForkedBatchNorm(param.batch_norm_param())) return MakeForkedBatchNormLayer(param, context);
  return std::make_unique<BatchNormLayer>(param, context);
}

}  // namespace poseidon::caffe
