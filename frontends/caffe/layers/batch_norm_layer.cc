// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>

#include <optional>
#include <tuple>
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
class BatchNormLayer final : public NeuronLayer, private FusedNormalization {
 public:
  using NeuronLayer::NeuronLayer;
  bool is_statistic(int /*index*/) const override { return true; }

  bool Fuse(Layer* above) override {
    auto* const scale = dynamic_cast<ChannelScale*>(above);
    if (scale == nullptr || !scale->LeaveTo(this, channels_)) return false;
    scale_ = scale;
    return true;
  }

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
    input_ = bottom[0]->data.view(view_);
    if (uses_running_) {
      const double count = weight(2).item<double>();
      const double scale = count == 0 ? 0 : 1 / count;
      mean_ = weight(0).mul(scale);
      variance_ = weight(1).mul(scale);
    } else {
      std::tie(mean_, variance_) = at::batch_norm_update_stats(input_, {}, {}, /*momentum=*/0);
      Remember(mean_, variance_);
    }
    if (scale_ == nullptr) top[0]->data = ForwardAll().view(bottom[0]->data.sizes());
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    if (scale_ == nullptr) BackwardAll(top[0]->diff, /*wants_bottom=*/true, false, false);
    bottom[0]->diff = std::exchange(bottom_gradient_, {}).view(bottom[0]->data.sizes());
    return OkStatus();
  }

 private:
  // In memory of its own, also in place: the backward pass reads the input.
  at::Tensor ForwardAll() override {
    return std::get<0>(at::native_batch_norm(input_, Factor(), Term(), mean_, variance_, /*training=*/false, /*momentum=*/0, Epsilon()));
  }

  Gradients BackwardAll(const at::Tensor& gradient, bool wants_bottom, bool wants_factor, bool wants_term) override {
    const bool trains = !uses_running_;
    const at::Tensor inverse = trains ? variance_.add(Epsilon()).rsqrt_() : at::Tensor();
    auto [down, factor, term] = at::native_batch_norm_backward(
        gradient.view(view_), input_, Factor(), trains ? std::nullopt : std::optional(mean_),
        trains ? std::nullopt : std::optional(variance_), trains ? std::optional(mean_) : std::nullopt,
        trains ? std::optional(inverse) : std::nullopt, trains, Epsilon(), {wants_bottom, wants_factor, wants_term});
    bottom_gradient_ = std::move(down);
    return {std::move(factor), std::move(term)};
  }

  std::optional<at::Tensor> Factor() const { return scale_ != nullptr ? std::optional(scale_->factor_data()) : std::nullopt; }
  std::optional<at::Tensor> Term() const {
    const at::Tensor term = scale_ != nullptr ? scale_->term_data() : at::Tensor();
    return term.defined() ? std::optional(term) : std::nullopt;
  }
  double Epsilon() const { return static_cast<double>(param().batch_norm_param().eps()); }
  void Remember(const at::Tensor& mean, const at::Tensor& variance) {
    const auto fraction =
        static_cast<double>(param().batch_norm_param().moving_average_fraction());
    const double count = static_cast<double>(view_[0] * view_[2]);
    weight(2).mul_(fraction).add_(1);
    weight(0).mul_(fraction).add_(mean);
    weight(1).mul_(fraction).add_(variance, count > 1 ? count / (count - 1) : 1.0);
  }

  std::int64_t channels_ = 0;
  bool uses_running_ = false;
  Shape view_;  // batch, channels, the rest
  ChannelScale* scale_ = nullptr;  // that is computed here; of the same net
  at::Tensor input_;  // of the last Forward
  at::Tensor mean_;
  at::Tensor variance_;  // biased
  at::Tensor bottom_gradient_;
};

}  // namespace

std::unique_ptr<Layer> MakeBatchNormLayer(const LayerParameter& param,
                                          const LayerContext& context) {
  if (AsksForForkedBatchNorm(param.batch_norm_param())) return MakeForkedBatchNormLayer(param, context);
  return std::make_unique<BatchNormLayer>(param, context);
}

}  // namespace poseidon::caffe
