// SPDX-License-Identifier: Apache-2.0
// BatchNorm with options that only forks have: scale_bias, scale_filler and bias_filler of NVCaffe, stats_batch_size of Intel's.
#include <ATen/ops/mul.h>

#include "frontends/caffe/layers/channel_norm.h"
#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// As Caffe's BatchNorm (batch_norm_layer.cc), and further:
//
// scale_bias: two more blobs multiply and shift what was normalized. Blobs 0 and 1 are then the running mean and variance
// themselves: the first batch's to begin with, afterwards r = fraction * r + (1 - fraction) * batch; blob 2 is 1 from the
// first batch on, as NVCaffe's files have it. (NVCaffe copies the second batch's statistics too.)
//
// stats_batch_size: the batch's statistics are those of so many images in a row, which the running sums take in turn.
class ForkedBatchNormLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;
  bool is_statistic(int index) const override { return index < 3; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    if (bottom[0]->data.dim() < 2) {
      return InvalidArgument("bottom has shape " + ShapeText(bottom[0]->data.sizes()) + ", expected two axes or more");
    }
    const BatchNormParameter& given = param().batch_norm_param();
    channels_ = bottom[0]->data.size(1);
    scales_ = given.scale_bias() || given.has_scale_filler() || given.has_bias_filler();
    uses_running_ = given.has_use_global_stats() ? given.use_global_stats() : phase() == TEST;
    const FillerParameter zero;
    DeclareParam({channels_}, zero);
    DeclareParam({channels_}, zero);
    DeclareParam({1}, zero);
    for (int i = 0; i < 3; ++i) FreezeParam(i);
    if (!scales_) return OkStatus();
    FillerParameter scale = given.scale_filler();
    if (!given.has_scale_filler()) scale.set_value(1);
    DeclareParam({channels_}, scale);
    DeclareParam({channels_}, given.bias_filler());
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    if (sizes.size() < 2 || sizes[1] != channels_) {
      return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected " + std::to_string(channels_) + " channels");
    }
    const auto images = static_cast<std::int64_t>(param().batch_norm_param().stats_batch_size());
    const bool divides = images > 0 && !uses_running_;
    if (divides && sizes[0] % images != 0) {
      return InvalidArgument("stats_batch_size " + std::to_string(images) + " does not divide the " + std::to_string(sizes[0]) +
                             " images of a batch");
    }
    norm_.SetShape(sizes, divides ? std::max<std::int64_t>(1, sizes[0] / images) : 1);
    return NeuronLayer::Reshape(bottom, top);
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    ChannelNorm::Statistics statistics;
    if (uses_running_) {
      const double count = weight(2).item<double>();
      const double scale = count == 0 ? 0 : 1 / count;
      statistics = {weight(0).mul(scale), weight(1).mul(scale)};
    } else {
      statistics = norm_.Measure(bottom[0]->data);
      for (std::int64_t group = 0; group < norm_.groups(); ++group) Remember(statistics.mean[group], statistics.variance[group]);
    }
    const at::Tensor normalized =
        norm_.Normalize(bottom[0]->data, statistics, static_cast<double>(param().batch_norm_param().eps()));
    top[0]->data.copy_(scales_ ? norm_.Scale(normalized, weight(3), weight(4)) : normalized);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    const at::Tensor& gradient = top[0]->diff;
    if (scales_ && WantsParamDiff(3)) AddParamDiff(3, norm_.Sum(gradient.mul(norm_.normalized())));
    if (scales_ && WantsParamDiff(4)) AddParamDiff(4, norm_.Sum(gradient));
    if (!propagate_down[0]) return OkStatus();
    const at::Tensor scaled = scales_ ? norm_.Scale(gradient, weight(3)) : gradient;
    DiffOf(bottom[0]).copy_(norm_.Backward(scaled, !uses_running_));
    return OkStatus();
  }

 private:
  void Remember(const at::Tensor& mean, const at::Tensor& variance) {
    const auto fraction = static_cast<double>(param().batch_norm_param().moving_average_fraction());
    const auto count = static_cast<double>(norm_.count());
    const double unbiased = count > 1 ? count / (count - 1) : 1.0;
    if (!scales_) {
      weight(2).mul_(fraction).add_(1);
      weight(0).mul_(fraction).add_(mean);
      weight(1).mul_(fraction).add_(variance, unbiased);
      return;
    }
    const double fresh = weight(2).item<double>() == 0 ? 1 : 1 - fraction;
    weight(2).fill_(1);
    weight(0).lerp_(mean, fresh);
    weight(1).lerp_(variance.mul(unbiased), fresh);
  }

  std::int64_t channels_ = 0;
  bool scales_ = false;
  bool uses_running_ = false;
  ChannelNorm norm_;
};

}  // namespace

bool AsksForForkedBatchNorm(const BatchNormParameter& options) {
  return options.scale_bias() || options.has_scale_filler() || options.has_bias_filler() || options.stats_batch_size() > 0;
}

std::unique_ptr<Layer> MakeForkedBatchNormLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ForkedBatchNormLayer>(param, context);
}

}  // namespace poseidon::caffe
