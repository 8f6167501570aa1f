// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <utility>

#include "frontends/caffe/layers/channel_norm.h"
#include "frontends/caffe/layers/channel_scale.h"
#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// (x - mean) / sqrt(variance + eps) per channel, without scale and shift: the Scale layer does that, or has it done here in the same
// pass (channel_scale.h). In training the statistics are those of the batch, and running sums of them are kept: blobs 0 and 1 decay by
// moving_average_fraction and take the batch's mean and unbiased variance, blob 2 counts them the same way; blob 0 / blob 2 and
// blob 1 / blob 2 serve when testing.
//
// Of forks:
//
// scale_bias (NVCaffe; scale_filler and bias_filler ask for it, too): two more blobs multiply and shift what was normalized. Blobs 0 and
// 1 are then the running mean and variance themselves: the first batch's to begin with, afterwards r = fraction * r + (1 - fraction) *
// batch; blob 2 is 1 from the first batch on, as NVCaffe's files have it. (NVCaffe copies the second batch's statistics too.)
//
// stats_batch_size (Intel's): the batch's statistics are those of so many images in a row, which the running sums take in turn.
class BatchNormLayer final : public NeuronLayer, private FusedNormalization {
 public:
  using NeuronLayer::NeuronLayer;
  bool is_statistic(int index) const override { return index < 3; }

  bool Fuse(Layer* above) override {
    auto* const scale = scales_ ? nullptr : dynamic_cast<ChannelScale*>(above);
    if (scale == nullptr || !scale->LeaveTo(this, channels_)) return false;
    above_ = scale;
    return true;
  }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    if (bottom[0]->data.dim() < 2) {
      return InvalidArgument("bottom has shape " + ShapeText(bottom[0]->data.sizes()) + ", expected two axes or more");
    }
    channels_ = bottom[0]->data.size(1);
    scales_ = given().scale_bias() || given().has_scale_filler() || given().has_bias_filler();
    uses_running_ = given().has_use_global_stats() ? given().use_global_stats() : phase() == TEST;
    if (!scales_ && given().stats_batch_size() == 0) POSEIDON_RETURN_IF_ERROR(CheckRates());
    const FillerParameter zero;
    DeclareParam({channels_}, zero);
    DeclareParam({channels_}, zero);
    DeclareParam({1}, zero);
    for (int i = 0; i < 3; ++i) FreezeParam(i);
    if (!scales_) return OkStatus();
    FillerParameter scale = given().scale_filler();
    if (!given().has_scale_filler()) scale.set_value(1);
    DeclareParam({channels_}, scale);
    DeclareParam({channels_}, given().bias_filler());
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    if (sizes.size() < 2 || sizes[1] != channels_) {
      return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected " + std::to_string(channels_) + " channels");
    }
    const auto images = static_cast<std::int64_t>(given().stats_batch_size());
    const bool divides = images > 0 && !uses_running_;
    if (divides && sizes[0] % images != 0) {
      return InvalidArgument("stats_batch_size " + std::to_string(images) + " does not divide the " + std::to_string(sizes[0]) +
                             " images of a batch");
    }
    norm_.SetShape(sizes, static_cast<double>(given().eps()), divides ? std::max<std::int64_t>(1, sizes[0] / images) : 1);
    return NeuronLayer::Reshape(bottom, top);
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    if (uses_running_) {
      const at::Tensor scale = Scale();
      norm_.Use(bottom[0]->data, {weight(0).mul(scale), weight(1).mul(scale)});
    } else {
      const ChannelNorm::Statistics& batch = norm_.Measure(bottom[0]->data);
      for (std::int64_t group = 0; group < norm_.groups(); ++group) Remember(batch.mean[group], batch.variance[group]);
    }
    if (above_ == nullptr) top[0]->data = ForwardAll();
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (above_ == nullptr) {
      const bool factor = scales_ && WantsParamDiff(3);
      const bool term = scales_ && WantsParamDiff(4);
      const Gradients learned = BackwardAll(top[0]->diff, propagate_down[0], factor, term);
      if (factor) AddParamDiff(3, learned.factor);
      if (term) AddParamDiff(4, learned.term);
    }
    if (propagate_down[0]) bottom[0]->diff = std::exchange(bottom_gradient_, {});
    return OkStatus();
  }

 private:
  const BatchNormParameter& given() const { return param().batch_norm_param(); }

  Status CheckRates() const {
    for (const ParamSpec& spec : param().param()) {
      if (spec.lr_mult() != 0) return InvalidArgument("its statistics are not trained: param { lr_mult: 0 } expected");
    }
    return OkStatus();
  }

  at::Tensor ForwardAll() override { return norm_.Forward(Factor(), Term()); }

  Gradients BackwardAll(const at::Tensor& gradient, bool wants_bottom, bool wants_factor, bool wants_term) override {
    ChannelNorm::Gradients all = norm_.Backward(gradient, Factor(), {wants_bottom, wants_factor, wants_term});
    bottom_gradient_ = std::move(all.in);
    return {std::move(all.factor), std::move(all.term)};
  }

  at::Tensor Factor() { return above_ != nullptr ? above_->factor_data() : scales_ ? weight(3) : at::Tensor(); }
  at::Tensor Term() { return above_ != nullptr ? above_->term_data() : scales_ ? weight(4) : at::Tensor(); }

  // 1 / count, 0 where nothing has been counted.
  at::Tensor Scale() {
    const at::Tensor& count = weight(2);
    return at::where(count.eq(0), at::zeros_like(count), count.reciprocal());
  }

  void Remember(const at::Tensor& mean, const at::Tensor& variance) {
    const auto fraction = static_cast<double>(given().moving_average_fraction());
    const auto count = static_cast<double>(norm_.count());
    const double unbiased = count > 1 ? count / (count - 1) : 1.0;
    if (!scales_) {
      weight(2).mul_(fraction).add_(1);
      weight(0).mul_(fraction).add_(mean);
      weight(1).mul_(fraction).add_(variance, unbiased);
      return;
    }
    const auto take = [&](const auto& fresh) {
      weight(0).lerp_(mean, fresh);
      weight(1).lerp_(variance.mul(unbiased), fresh);
    };
    if (weight(2).is_cpu()) {
      take(weight(2).item<double>() == 0 ? 1 : 1 - fraction);
    } else {  // the same without a number that the host would wait for, once for every such layer
      take(at::where(weight(2).eq(0), 1.0, 1 - fraction).to(weight(2).scalar_type()));
    }
    weight(2).fill_(1);
  }

  std::int64_t channels_ = 0;
  bool scales_ = false;
  bool uses_running_ = false;
  ChannelNorm norm_;
  ChannelScale* above_ = nullptr;  // that is computed here; of the same net
  at::Tensor bottom_gradient_;
};

}  // namespace

std::unique_ptr<Layer> MakeBatchNormLayer(const LayerParameter& param,
                                          const LayerContext& context) {
  return std::make_unique<BatchNormLayer>(param, context);
}

}  // namespace poseidon::caffe
