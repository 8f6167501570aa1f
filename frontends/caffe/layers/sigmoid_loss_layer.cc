// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/abs.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>

#include "frontends/caffe/layers/labels.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// The cross entropy of sigmoid(x) against targets in [0, 1], summed and divided by the batch size
// unless the layer says otherwise (normalization).
class SigmoidCrossEntropyLossLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 1}; }
  bool is_loss() const override { return true; }
  bool is_masked_mean() const override { return IsMaskedMean(param().loss_param(), LossParameter::BATCH_SIZE); }
  std::int64_t counted() const override { return counted_; }
  bool AllowForceBackward(int bottom) const override { return bottom != 1; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    if (bottom[0]->count() != bottom[1]->count() || bottom[0]->data.dim() == 0) {
      return InvalidArgument("compares shapes " + ShapeText(bottom[0]->data.sizes()) + " and " +
                             ShapeText(bottom[1]->data.sizes()) + ", expected equal counts");
    }
    view_.outer = bottom[0]->data.size(0);
    view_.inner = view_.outer == 0 ? 0 : bottom[0]->count() / view_.outer;
    SetShape(top[0], {}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const at::Tensor& x = bottom[0]->data;
    target_ = bottom[1]->data.view(x.sizes());
    // -(x t - max(x, 0) - log(1 + exp(-|x|))): no overflow for any x
    at::Tensor terms = at::abs(x).neg_().exp_().log1p_().add_(x.clamp_min(0)).sub_(x.mul(target_));
    counted_ = x.numel();
    valid_.reset();
    if (param().loss_param().has_ignore_label()) {
      valid_ = target_.trunc().ne(param().loss_param().ignore_label()).to(x.scalar_type());
      counted_ = static_cast<std::int64_t>(valid_.sum().item<double>());
      terms.mul_(valid_);
    }
    normalizer_ = Normalizer(param().loss_param(), LossParameter::BATCH_SIZE,
                             view_, counted_);
    top[0]->data.copy_(terms.sum().div_(normalizer_));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (propagate_down[1]) return InvalidArgument("cannot propagate to targets (bottom 1)");
    if (!propagate_down[0]) return OkStatus();
    at::Tensor& diff = DiffOf(bottom[0]);
    at::sigmoid_out(diff, bottom[0]->data);
    diff.sub_(target_).mul_(top[0]->diff.item<double>() / normalizer_);
    if (valid_.defined()) diff.mul_(valid_);
    return OkStatus();
  }

 private:
  ClassView view_;
  at::Tensor target_;
  at::Tensor valid_;
  std::int64_t counted_ = 0;
  double normalizer_ = 1;
};

}  // namespace

std::unique_ptr<Layer> MakeSigmoidCrossEntropyLossLayer(const LayerParameter& param,
                                                        const LayerContext& context) {
  return std::make_unique<SigmoidCrossEntropyLossLayer>(param, context);
}

}  // namespace poseidon::caffe
