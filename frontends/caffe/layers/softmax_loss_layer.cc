// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/mul.h>

#include <limits>

#include "frontends/caffe/layers/labels.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// The mean over labels of -log softmax(scores)[label]; an optional second top is the softmax, a third
// the terms of the sum (R-FCN), without a gradient of their own. With weight_by_label_freqs
// (SegNet) a label's term counts as often as class_weighting says; the mean is still over labels.
class SoftmaxWithLossLayer final : public Layer {
 public:
  // Labels count from `first_label`.
  SoftmaxWithLossLayer(const LayerParameter& param, const LayerContext& context, std::int64_t first_label = 0)
      : Layer(param, context), first_label_(first_label) {}
  Arity arity() const override { return {2, 2, 1, 3}; }
  bool is_loss() const override { return true; }
  bool is_masked_mean() const override { return IsMaskedMean(param().loss_param(), LossParameter::VALID); }
  std::int64_t counted() const override { return labels_.valid_count; }
  bool AllowForceBackward(int bottom) const override { return bottom != 1; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_ASSIGN_OR_RETURN(
        view_, ViewClasses(*bottom[0], *bottom[1], param().softmax_param().axis()));
    POSEIDON_RETURN_IF_ERROR(ReadWeights());
    SetShape(top[0], {}, options());
    if (top.size() > 1) SetShape(top[1], bottom[0]->shape(), options());
    if (top.size() > 2) SetShape(top[2], bottom[1]->shape(), options());
    probability_ = at::empty_like(bottom[0]->data);
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    at::_softmax_out(probability_, bottom[0]->data, view_.axis, false);
    std::optional<int> ignored;
    if (param().loss_param().has_ignore_label()) ignored = param().loss_param().ignore_label();
    if (first_label_ == 0) {
      POSEIDON_ASSIGN_OR_RETURN(labels_, ReadLabels(bottom[1]->data, view_, ignored, &bad_row_));
    } else {
      Result<Labels> read = ReadLabels(bottom[1]->data.sub(first_label_), view_, ignored, &bad_row_);
      if (!read.ok()) return read.status().WithPrefix("of labels, which count from " + std::to_string(first_label_) + " here, less that");
      labels_ = *std::move(read);
    }
    // The smallest normal float bounds the loss of a label that got probability 0.
    at::Tensor terms = at::gather(Classes(probability_), 1, labels_.index)
                           .clamp_min_(std::numeric_limits<float>::min())
                           .log_();
    if (class_weights_.defined()) terms.mul_(LabelWeights());
    if (labels_.valid.defined()) terms.mul_(labels_.valid);
    normalizer_ = Normalizer(param().loss_param(), LossParameter::VALID, view_,
                             labels_.valid_count);
    top[0]->data.copy_(terms.sum().div_(-normalizer_));
    if (top.size() > 1) top[1]->data.copy_(probability_);
    if (top.size() > 2) top[2]->data.copy_(terms.neg_().view(top[2]->data.sizes()));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (propagate_down[1]) return InvalidArgument("cannot propagate to labels (bottom 1)");
    if (!propagate_down[0]) return OkStatus();
    at::Tensor& diff = DiffOf(bottom[0]);
    const double scale = top[0]->diff.item<double>() / normalizer_;
    at::mul_out(diff, probability_, at::Scalar(scale));
    const at::Tensor classes = Classes(diff);
    // Every label has its own place. A tensor of numbers to add would be sorted on a GPU, so that sums have one order.
    classes.scatter_(1, labels_.index, at::Scalar(-scale), "add");
    if (class_weights_.defined()) classes.mul_(LabelWeights());
    if (labels_.valid.defined()) classes.mul_(labels_.valid);
    return OkStatus();
  }

 private:
  Status ReadWeights() {
    const LossParameter& loss = param().loss_param();
    if (!loss.weight_by_label_freqs()) return OkStatus();
    if (loss.class_weighting_size() != view_.classes) {
      return InvalidArgument("has " + std::to_string(loss.class_weighting_size()) + " class_weighting for " +
                             std::to_string(view_.classes) + " classes, expected one for each");
    }
    class_weights_ = at::empty({view_.classes}, options());
    for (int i = 0; i < loss.class_weighting_size(); ++i) class_weights_[i].fill_(loss.class_weighting(i));
    return OkStatus();
  }
  // What each label weighs, [outer, 1, inner].
  at::Tensor LabelWeights() const {
    return class_weights_.index_select(0, labels_.index.view({-1})).view({view_.outer, 1, view_.inner});
  }
  at::Tensor Classes(const at::Tensor& blob) const {
    return blob.view({view_.outer, view_.classes, view_.inner});
  }

  const std::int64_t first_label_;
  ClassView view_;
  at::Tensor probability_;
  Labels labels_;
  at::Tensor class_weights_;  // undefined: all labels weigh 1
  double normalizer_ = 1;
};

}  // namespace

std::unique_ptr<Layer> MakeSoftmaxWithLossLayer(const LayerParameter& param,
                                                const LayerContext& context) {
  return std::make_unique<SoftmaxWithLossLayer>(param, context);
}

// Of 3D normals and poses: labels count from 1, and the sum over places is divided by the images.
std::unique_ptr<Layer> MakeMultiSoftmaxWithLossLayer(const LayerParameter& param, const LayerContext& context) {
  LayerParameter by_images = param;
  by_images.mutable_loss_param()->set_normalization(LossParameter::BATCH_SIZE);
  return std::make_unique<SoftmaxWithLossLayer>(by_images, context, /*first_label=*/1);
}

}  // namespace poseidon::caffe
