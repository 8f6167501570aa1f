// SPDX-License-Identifier: Apache-2.0
// Losses of class scores beside SoftmaxWithLoss: hinge, multinomial logistic and infogain.
#include <ATen/ops/_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sign.h>

#include <algorithm>

#include "frontends/caffe/layers/labels.h"
#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/proto/read.h"

namespace poseidon::caffe {
namespace {

constexpr double kLeastProbability = 1e-20;  // Caffe's bound before taking a logarithm

// Each image has one label; its scores are the whole row.
Result<ClassView> ViewRows(const Blob& scores, const Blob& labels) {
  ClassView view;
  if (scores.data.dim() == 0) return InvalidArgument("scores have no axes");
  view.outer = scores.data.size(0);
  view.classes = CountOf(scores.data.sizes(), 1, scores.data.dim());
  if (labels.count() != view.outer) {
    return InvalidArgument("has " + std::to_string(labels.count()) + " labels for scores of shape " +
                           ShapeText(scores.data.sizes()) + ", expected one per row");
  }
  return view;
}

class LabelLossLayer : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 1}; }
  bool is_loss() const override { return true; }
  bool AllowForceBackward(int bottom) const override { return bottom == 0; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_ASSIGN_OR_RETURN(view_, ViewRows(*bottom[0], *bottom[1]));
    SetShape(top[0], {}, options());
    return OkStatus();
  }

 protected:
  at::Tensor Classes(const at::Tensor& blob) const {
    return blob.view({view_.outer, view_.classes, view_.inner});
  }
  double rows() const { return static_cast<double>(view_.outer); }

  ClassView view_;
  Labels labels_;
};

// The mean over rows of max(0, 1 - x) for the true class and max(0, 1 + x) for the others, or of
// the squares.
class HingeLossLayer final : public LabelLossLayer {
 public:
  using LabelLossLayer::LabelLossLayer;

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_ASSIGN_OR_RETURN(labels_, ReadLabels(bottom[1]->data, view_, std::nullopt, &bad_row_));
    margin_ = bottom[0]->data.clone();
    FlipTruth();
    margin_.add_(1).clamp_min_(0);
    const at::Tensor sum = squared() ? margin_.mul(margin_).sum() : margin_.sum();
    top[0]->data.copy_(sum.div(rows()));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const double scale = top[0]->diff.item<double>() / rows();
    FlipTruth();
    at::Tensor& diff = DiffOf(bottom[0]);
    if (squared()) {
      at::mul_out(diff, margin_, at::Scalar(2 * scale));
    } else {
      at::sign_out(diff, margin_);
      diff.mul_(scale);
    }
    return OkStatus();
  }

 private:
  bool squared() const { return param().hinge_loss_param().norm() == HingeLossParameter::L2; }
  void FlipTruth() {
    const at::Tensor classes = Classes(margin_);
    classes.scatter_(1, labels_.index, at::gather(classes, 1, labels_.index).neg_());
  }

  at::Tensor margin_;
};

// The mean over rows of -log p[label], for scores that are probabilities already.
class MultinomialLogisticLossLayer final : public LabelLossLayer {
 public:
  using LabelLossLayer::LabelLossLayer;

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_ASSIGN_OR_RETURN(labels_, ReadLabels(bottom[1]->data, view_, std::nullopt, &bad_row_));
    truth_ = at::gather(Classes(bottom[0]->data), 1, labels_.index).clamp_min_(kLeastProbability);
    top[0]->data.copy_(truth_.log().sum().div_(-rows()));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const double scale = -top[0]->diff.item<double>() / rows();
    Classes(DiffOf(bottom[0]).zero_()).scatter_(1, labels_.index, truth_.reciprocal().mul_(scale));
    return OkStatus();
  }

 private:
  at::Tensor truth_;
};

// Softmax with a matrix H that says what each answer costs for each label:
// -sum over l of H[label, l] * log p[l]. H is the third bottom or read from `source`.
class InfogainLossLayer final : public LabelLossLayer {
 public:
  using LabelLossLayer::LabelLossLayer;
  Arity arity() const override { return {2, 3, 1, 2}; }
  bool is_masked_mean() const override { return IsMaskedMean(param().loss_param(), LossParameter::VALID); }
  std::int64_t counted() const override { return labels_.valid_count; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    if (param().loss_param().has_normalize()) {
      return InvalidArgument("takes loss_param { normalization }, not the older normalize");
    }
    if (bottom.size() == 3) return OkStatus();
    const std::string& source = param().infogain_loss_param().source();
    if (source.empty()) return InvalidArgument("needs a third bottom or infogain_loss_param source");
    BlobProto proto;
    POSEIDON_RETURN_IF_ERROR(ReadBinaryFile(source, &proto));
    matrix_ = at::empty({proto.data_size()}, options());
    for (int i = 0; i < proto.data_size(); ++i) matrix_[i].fill_(proto.data(i));
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_ASSIGN_OR_RETURN(
        view_, ViewClasses(*bottom[0], *bottom[1], param().infogain_loss_param().axis()));
    const std::int64_t given = bottom.size() == 3 ? bottom[2]->count() : matrix_.numel();
    if (given != view_.classes * view_.classes) {
      return InvalidArgument("the infogain matrix has " + std::to_string(given) +
                             " numbers, expected " + std::to_string(view_.classes) + "x" +
                             std::to_string(view_.classes));
    }
    SetShape(top[0], {}, options());
    if (top.size() > 1) SetShape(top[1], bottom[0]->shape(), options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    std::optional<int> ignored;
    if (param().loss_param().has_ignore_label()) ignored = param().loss_param().ignore_label();
    POSEIDON_ASSIGN_OR_RETURN(labels_, ReadLabels(bottom[1]->data, view_, ignored, &bad_row_));
    probability_ = at::_softmax(bottom[0]->data, view_.axis, false);
    // The row of H for each label, laid out as the scores are.
    const at::Tensor matrix = (bottom.size() == 3 ? bottom[2]->data : matrix_)
                                  .view({view_.classes, view_.classes});
    costs_ = matrix.index_select(0, labels_.index.view({-1}))
                 .view({view_.outer, view_.inner, view_.classes})
                 .transpose(1, 2)
                 .contiguous();
    if (labels_.valid.defined()) costs_.mul_(labels_.valid);
    normalizer_ = Normalizer(param().loss_param(), LossParameter::VALID, view_,
                             labels_.valid_count);
    const at::Tensor logs = Classes(probability_).clamp_min(kLeastProbability).log_();
    top[0]->data.copy_(logs.mul_(costs_).sum().div_(-normalizer_));
    if (top.size() > 1) top[1]->data.copy_(probability_);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const double scale = top[0]->diff.item<double>() / normalizer_;
    at::Tensor diff = Classes(DiffOf(bottom[0]));
    at::mul_out(diff, Classes(probability_), costs_.sum(at::IntArrayRef{1}, true));
    diff.sub_(costs_).mul_(scale);
    return OkStatus();
  }

 private:
  at::Tensor matrix_;
  at::Tensor probability_;
  at::Tensor costs_;
  double normalizer_ = 1;
};

}  // namespace

std::unique_ptr<Layer> MakeHingeLossLayer(const LayerParameter& param,
                                          const LayerContext& context) {
  return std::make_unique<HingeLossLayer>(param, context);
}

std::unique_ptr<Layer> MakeMultinomialLogisticLossLayer(const LayerParameter& param,
                                                        const LayerContext& context) {
  return std::make_unique<MultinomialLogisticLossLayer>(param, context);
}

std::unique_ptr<Layer> MakeInfogainLossLayer(const LayerParameter& param,
                                             const LayerContext& context) {
  return std::make_unique<InfogainLossLayer>(param, context);
}

}  // namespace poseidon::caffe
