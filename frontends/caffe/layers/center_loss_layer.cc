// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/dot.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "frontends/caffe/layers/labels.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Half the mean over rows of |x - centre of its class|^2 (caffe-face). The centres are learned, but not by the loss's gradient:
// centre j moves along the sum of (centre - x) over its rows, divided by their number and one more, whatever the loss weighs.
class CenterLossLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 1}; }
  bool is_loss() const override { return true; }
  bool AllowForceBackward(int bottom) const override { return bottom == 0; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    const auto& options = param().center_loss_param();
    const std::int64_t axes = bottom[0]->data.dim();
    if (options.num_output() == 0) return InvalidArgument("needs num_output, the number of classes");
    POSEIDON_RETURN_IF_ERROR(CanonicalAxis("axis", options.axis(), axes, &axis_));
    DeclareParam({options.num_output(), CountOf(bottom[0]->data.sizes(), axis_, axes)}, options.center_filler());
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_ASSIGN_OR_RETURN(view_, ViewRows(*bottom[0], *bottom[1], axis_, weight(0)));
    SetShape(top[0], {}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_ASSIGN_OR_RETURN(const Labels labels, ReadLabels(bottom[1]->data, view_, std::nullopt, &bad_row_));
    index_ = labels.index.view({-1});
    distance_ = bottom[0]->data.view({view_.outer, -1}).sub(weight(0).index_select(0, index_));
    const at::Tensor flat = distance_.view({-1});
    top[0]->data.copy_(at::dot(flat, flat).div_(2 * Rows()));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (propagate_down[1]) return InvalidArgument("cannot propagate to labels (bottom 1)");
    if (WantsParamDiff(0)) {
      const at::Tensor counts = at::ones({view_.classes}, options()).index_add_(0, index_, at::ones({view_.outer}, options()));
      const at::Tensor sums = at::zeros(weight(0).sizes(), options()).index_add_(0, index_, distance_);
      AddParamDiff(0, sums.div_(counts.view({-1, 1})).neg_());
    }
    if (propagate_down[0]) {
      at::Tensor diff = DiffOf(bottom[0]).view(distance_.sizes());
      at::mul_out(diff, distance_, at::Scalar(top[0]->diff.item<double>() / Rows()));
    }
    return OkStatus();
  }

 private:
  double Rows() const { return static_cast<double>(view_.outer); }

  std::int64_t axis_ = 1;
  ClassView view_;
  at::Tensor index_;
  at::Tensor distance_;  // [rows, numbers]
};

}  // namespace

std::unique_ptr<Layer> MakeCenterLossLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<CenterLossLayer>(param, context);
}

}  // namespace poseidon::caffe
