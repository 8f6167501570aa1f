// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/where.h>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// For pairs of rows a, b at distance d: d^2 when they are similar, max(0, margin - d)^2 otherwise
// (legacy_version: max(0, margin - d^2)); half the mean over pairs.
class ContrastiveLossLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {3, 3, 1, 1}; }
  bool is_loss() const override { return true; }
  bool AllowForceBackward(int bottom) const override { return bottom != 2; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    if (sizes.size() < 2 || bottom[1]->data.sizes() != sizes || bottom[2]->count() != sizes[0]) {
      return InvalidArgument("compares shapes " + ShapeText(sizes) + " and " +
                             ShapeText(bottom[1]->data.sizes()) + " with similarities of shape " +
                             ShapeText(bottom[2]->data.sizes()) +
                             ", expected equal shapes and one similarity per row");
    }
    SetShape(top[0], {}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const std::int64_t rows = bottom[0]->data.size(0);
    difference_ = bottom[0]->data.sub(bottom[1]->data).view({rows, -1});
    similar_ = bottom[2]->data.view({rows, 1}).trunc().ne(0);
    const at::Tensor square = difference_.mul(difference_).sum(at::IntArrayRef{1}, true);
    distance_ = legacy() ? square : square.sqrt();
    gap_ = distance_.neg().add_(margin()).clamp_min_(0);
    const at::Tensor apart = legacy() ? gap_ : gap_.mul(gap_);
    const at::Tensor sum = at::where(similar_, square, apart).sum();
    top[0]->data.copy_(sum.div(2 * static_cast<double>(rows)));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    const double scale =
        top[0]->diff.item<double>() / static_cast<double>(bottom[0]->data.size(0));
    // d loss / d a = (a - b) times this; the small constant keeps equal rows apart from 0 / 0.
    const at::Tensor apart =
        legacy() ? gap_.gt(0).to(gap_.scalar_type()).neg_() : gap_.div(distance_.add(1e-4)).neg_();
    const at::Tensor pull = at::where(similar_, at::Scalar(1.0), apart).mul_(scale);
    const at::Tensor gradient = difference_.mul(pull).view(bottom[0]->data.sizes());
    if (propagate_down[0]) DiffOf(bottom[0]).copy_(gradient);
    if (propagate_down[1]) DiffOf(bottom[1]).copy_(gradient.neg());
    return OkStatus();
  }

 private:
  bool legacy() const { return param().contrastive_loss_param().legacy_version(); }
  double margin() const { return static_cast<double>(param().contrastive_loss_param().margin()); }

  at::Tensor difference_;
  at::Tensor similar_;
  at::Tensor distance_;
  at::Tensor gap_;
};

}  // namespace

std::unique_ptr<Layer> MakeContrastiveLossLayer(const LayerParameter& param,
                                                const LayerContext& context) {
  return std::make_unique<ContrastiveLossLayer>(param, context);
}

}  // namespace poseidon::caffe
