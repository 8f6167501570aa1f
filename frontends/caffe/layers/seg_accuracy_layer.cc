// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/argmax.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "frontends/caffe/layers/labels.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Three shares of a segmentation, 1 x 1 x 1 x 3, of how often a pixel of class i was taken for class j (DeepLab): pixels that are right; the
// mean over the classes that there are of those of a class that are right; the mean over all classes of what label and prediction share of what
// either has, 1 for a class that nothing has. With reset: false they are of all batches so far.
class SegAccuracyLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 1}; }
  bool differentiable() const override { return false; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto scores = bottom[0]->data.sizes();
    if (scores.size() != 4) return InvalidArgument("scores have shape " + ShapeText(scores) + ", expected images: four axes");
    POSEIDON_ASSIGN_OR_RETURN(view_, ViewClasses(*bottom[0], *bottom[1], 1));
    if (!taken_.defined() || taken_.size(0) != view_.classes) taken_ = Nothing();
    SetShape(top[0], {1, 1, 1, 3}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const at::Tensor labels = bottom[1]->data.to(at::kLong).view({-1});
    at::Tensor counts = at::ones_like(labels);
    for (const std::int32_t ignored : param().seg_accuracy_param().ignore_label()) counts.mul_(labels.ne(ignored));
    const ClassView pixels{.axis = 1, .outer = labels.numel(), .classes = view_.classes, .inner = 1};
    POSEIDON_ASSIGN_OR_RETURN(const Labels read, ReadLabels(labels.mul(counts), pixels, std::nullopt, nullptr));
    const at::Tensor predicted = at::argmax(bottom[0]->data.view({view_.outer, view_.classes, view_.inner}), 1).view({-1});
    if (param().seg_accuracy_param().reset()) taken_ = Nothing();
    taken_.view({-1}).scatter_add_(0, read.index.view({-1}).mul(view_.classes).add_(predicted), counts.to(at::kDouble));
    const at::Tensor right = taken_.diag(), labelled = taken_.sum(1), either = labelled.add(taken_.sum(0)).sub_(right);
    const at::Tensor numbers = top[0]->data.view({-1});
    numbers[0].fill_(right.sum().div(taken_.sum().clamp_min(1)).item<double>());
    numbers[1].fill_(right.div(labelled.clamp_min(1)).sum().div(labelled.gt(0).sum().clamp_min(1)).item<double>());
    numbers[2].fill_(at::where(either.eq(right), at::Scalar(1.0), right.div(either)).mean().item<double>());
    return OkStatus();
  }

 private:
  at::Tensor Nothing() const { return at::zeros({view_.classes, view_.classes}, options().dtype(at::kDouble)); }

  ClassView view_;
  at::Tensor taken_;  // [label, prediction]
};

}  // namespace

std::unique_ptr<Layer> MakeSegAccuracyLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<SegAccuracyLayer>(param, context);
}

}  // namespace poseidon::caffe
