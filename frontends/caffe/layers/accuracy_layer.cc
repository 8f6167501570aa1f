// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/gather.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "frontends/caffe/layers/labels.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// The share of rows whose true class is among the top_k; a class that scores as much as the true
// one counts as better. An optional second top holds the share per class.
class AccuracyLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 2}; }
  bool differentiable() const override { return false; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_ASSIGN_OR_RETURN(
        view_, ViewClasses(*bottom[0], *bottom[1], param().accuracy_param().axis()));
    if (static_cast<std::int64_t>(param().accuracy_param().top_k()) > view_.classes) {
      return InvalidArgument("top_k is " + std::to_string(param().accuracy_param().top_k()) +
                             ", but there are " + std::to_string(view_.classes) + " classes");
    }
    SetShape(top[0], {}, options());
    if (top.size() > 1) SetShape(top[1], {view_.classes}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const auto& settings = param().accuracy_param();
    std::optional<int> ignored;
    if (settings.has_ignore_label()) ignored = settings.ignore_label();
    POSEIDON_ASSIGN_OR_RETURN(const Labels labels, ReadLabels(bottom[1]->data, view_, ignored, &bad_row_));
    const at::Tensor scores = bottom[0]->data.view({view_.outer, view_.classes, view_.inner});
    const at::Tensor truth = at::gather(scores, 1, labels.index);
    // The true class is as good as itself, so a hit has at most top_k such classes.
    at::Tensor hits = scores.ge(truth)
                          .sum(at::IntArrayRef{1}, /*keepdim=*/true)
                          .le(static_cast<std::int64_t>(settings.top_k()))
                          .to(context().dtype);
    if (labels.valid.defined()) hits.mul_(labels.valid);
    const double count = static_cast<double>(labels.valid_count);
    top[0]->data.fill_(count == 0 ? 0.0 : hits.sum().item<double>() / count);
    if (top.size() > 1) PerClass(labels, hits, top[1]);
    return OkStatus();
  }

 private:
  void PerClass(const Labels& labels, const at::Tensor& hits, Blob* top) const {
    const at::Tensor index = labels.index.view({-1});
    const at::Tensor present =
        labels.valid.defined() ? labels.valid.view({-1}) : at::ones(index.sizes(), options());
    const at::Tensor rows = at::zeros({view_.classes}, options()).scatter_add_(0, index, present);
    const at::Tensor found =
        at::zeros({view_.classes}, options()).scatter_add_(0, index, hits.view({-1}));
    top->data.copy_(found.div(rows.clamp_min(1)));
  }

  ClassView view_;
};

}  // namespace

std::unique_ptr<Layer> MakeAccuracyLayer(const LayerParameter& param,
                                         const LayerContext& context) {
  return std::make_unique<AccuracyLayer>(param, context);
}

}  // namespace poseidon::caffe
