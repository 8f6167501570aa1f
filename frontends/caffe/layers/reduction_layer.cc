// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/mul.h>
#include <ATen/ops/sign.h>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Folds all axes from `axis` on into one number: sum, mean, sum of absolute values or of squares,
// times coeff.
class ReductionLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const Shape from = bottom[0]->shape();
    const auto axes = static_cast<std::int64_t>(from.size());
    std::int64_t axis = 0;
    POSEIDON_RETURN_IF_ERROR(
        CanonicalAxis("axis", param().reduction_param().axis(), axes, &axis));
    view_ = {CountOf(from, 0, axis), CountOf(from, axis, axes)};
    factor_ = static_cast<double>(param().reduction_param().coeff());
    if (operation() == ReductionParameter::MEAN) factor_ /= static_cast<double>(view_[1]);
    SetShape(top[0], Shape(from.begin(), from.begin() + axis), options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    at::Tensor in = bottom[0]->data.view(view_);
    if (operation() == ReductionParameter::ASUM) in = in.abs();
    if (operation() == ReductionParameter::SUMSQ) in = in.mul(in);
    top[0]->data.view({-1}).copy_(in.sum(at::IntArrayRef{1}));
    if (factor_ != 1) top[0]->data.mul_(factor_);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const at::Tensor in = bottom[0]->data.view(view_);
    const at::Tensor gradient = top[0]->diff.view({-1, 1}).mul(factor_);
    at::Tensor diff = DiffOf(bottom[0]).view(view_);
    switch (operation()) {
      case ReductionParameter::SUM:
      case ReductionParameter::MEAN: diff.copy_(gradient.expand(view_)); break;
      case ReductionParameter::ASUM: at::mul_out(diff, at::sign(in), gradient); break;
      case ReductionParameter::SUMSQ: at::mul_out(diff, in, gradient.mul(2)); break;
    }
    return OkStatus();
  }

 private:
  ReductionParameter::ReductionOp operation() const {
    return param().reduction_param().operation();
  }

  Shape view_;  // rows that stay, elements that are folded
  double factor_ = 1;
};

}  // namespace

std::unique_ptr<Layer> MakeReductionLayer(const LayerParameter& param,
                                          const LayerContext& context) {
  return std::make_unique<ReductionLayer>(param, context);
}

}  // namespace poseidon::caffe
