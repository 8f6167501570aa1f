// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>

#include <optional>

#include "frontends/caffe/layers/channel_scale.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Multiplies by a factor and, or, adds a term whose axes are some of the bottom's: those from `axis`
// on. Scale multiplies, and adds with bias_term; Bias only adds. What the layer is named after is
// learned, or is the second bottom; the added term of a Scale is always learned. A factor for every channel may be left to the
// normalization below.
class ScaleLayer final : public Layer, public ChannelScale {
 public:
  ScaleLayer(const LayerParameter& param, const LayerContext& context, bool multiplies)
      : Layer(param, context), multiplies_(multiplies) {}
  Arity arity() const override { return {1, 2, 1, 1}; }
  bool works_in_place() const override { return true; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    const bool learned = bottom.size() == 1;
    const std::int64_t axes = bottom[0]->data.dim();
    if (learned) {
      POSEIDON_RETURN_IF_ERROR(CanonicalAxis("axis", Axis(), axes, &axis_));
      const std::int64_t count = NumAxes() == -1 ? axes - axis_ : NumAxes();
      if (count < 0 || axis_ + count > axes) {
        return InvalidArgument("axis " + std::to_string(axis_) + " and num_axes " +
                               std::to_string(NumAxes()) + " do not fit shape " +
                               ShapeText(bottom[0]->data.sizes()));
      }
      const auto sizes = bottom[0]->data.sizes();
      shape_.assign(sizes.begin() + axis_, sizes.begin() + axis_ + count);
    } else {
      shape_ = bottom[1]->shape();
      if (!shape_.empty()) POSEIDON_RETURN_IF_ERROR(CanonicalAxis("axis", Axis(), axes, &axis_));
    }
    if (learned) {
      (multiplies_ ? factor_ : term_) = 0;
      FillerParameter filler = multiplies_ ? param().scale_param().filler()
                                           : param().bias_param().filler();
      if (multiplies_ && !param().scale_param().has_filler()) filler.set_value(1);
      DeclareParam(shape_, filler);
    }
    if (multiplies_ && param().scale_param().bias_term()) {
      term_ = learned ? 1 : 0;
      DeclareParam(shape_, param().scale_param().bias_filler());
    }
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    if (bottom.size() == 2) shape_ = bottom[1]->shape();
    const auto sizes = bottom[0]->data.sizes();
    const auto mine = static_cast<std::int64_t>(shape_.size());
    const bool fits = bottom[0]->data.dim() >= axis_ + mine &&
                      sizes.slice(static_cast<std::size_t>(axis_), shape_.size()) ==
                          at::IntArrayRef(shape_);
    if (!fits) {
      return InvalidArgument("bottom of shape " + ShapeText(sizes) + " and " +
                             (multiplies_ ? "scale" : "bias") + " of shape " +
                             ShapeText(shape_) + " do not agree from axis " + std::to_string(axis_) + " on");
    }
    if (term_ && weight(*term_).sizes() != at::IntArrayRef(shape_)) {
      return InvalidArgument("scale has shape " + ShapeText(shape_) + ", but the bias was learned for shape " +
                             ShapeText(weight(*term_).sizes()));
    }
    view_ = {CountOf(sizes, 0, axis_), CountOf(shape_, 0, mine),
             CountOf(sizes, axis_ + mine, bottom[0]->data.dim())};
    SetShape(top[0], bottom[0]->shape(), options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    if (below_ != nullptr) {
      top[0]->data = below_->ForwardAll().view(top[0]->data.sizes());
      return OkStatus();
    }
    const at::Tensor in = bottom[0]->data.view(view_);
    at::Tensor out = top[0]->data.view(view_);
    if (!multiplies_) {
      at::add_out(out, in, Spread(bottom.size() == 2 ? bottom[1]->data : weight(*term_)));
      return OkStatus();
    }
    if (top[0] == bottom[0]) input_ = bottom[0]->data.clone();
    at::mul_out(out, in, Spread(Factor(bottom)));
    if (term_) out.add_(Spread(weight(*term_)));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (below_ != nullptr) return BackwardBelow(top[0]->diff, propagate_down[0]);
    const at::Tensor gradient = top[0]->diff.view(view_);
    if (term_ && WantsParamDiff(*term_)) AddParamDiff(*term_, Gather(gradient));
    const bool second = bottom.size() == 2 && propagate_down[1];
    if (!multiplies_) {
      if (second) DiffOf(bottom[1]).copy_(Gather(gradient).view(shape_));
      if (propagate_down[0] && top[0] != bottom[0]) DiffOf(bottom[0]).copy_(top[0]->diff);
      return OkStatus();
    }
    if (second || (factor_ && WantsParamDiff(*factor_))) {
      const at::Tensor& in = top[0] == bottom[0] ? input_ : bottom[0]->data;
      const at::Tensor sums = Gather(gradient.mul(in.view(view_)));
      if (second) {
        DiffOf(bottom[1]).copy_(sums.view(shape_));
      } else {
        AddParamDiff(*factor_, sums);
      }
    }
    if (propagate_down[0]) {
      at::Tensor diff = DiffOf(bottom[0]).view(view_);
      at::mul_out(diff, gradient, Spread(Factor(bottom)));
    }
    return OkStatus();
  }

 private:
  bool LeaveTo(FusedNormalization* below, std::int64_t channels) override {
    if (!multiplies_ || !factor_ || axis_ != 1 || shape_ != Shape{channels}) return false;
    below_ = below;
    return true;
  }
  const at::Tensor& factor_data() override { return weight(*factor_); }
  at::Tensor term_data() override { return term_ ? weight(*term_) : at::Tensor(); }

  Status BackwardBelow(const at::Tensor& gradient, bool wants_bottom) {
    const auto [factor, term] = below_->BackwardAll(gradient, wants_bottom, WantsParamDiff(*factor_), term_ && WantsParamDiff(*term_));
    if (WantsParamDiff(*factor_)) AddParamDiff(*factor_, factor);
    if (term_ && WantsParamDiff(*term_)) AddParamDiff(*term_, term);
    return OkStatus();
  }

  std::int64_t Axis() const {
    return multiplies_ ? param().scale_param().axis() : param().bias_param().axis();
  }
  std::int64_t NumAxes() const {
    return multiplies_ ? param().scale_param().num_axes() : param().bias_param().num_axes();
  }
  at::Tensor Factor(const Blobs& bottom) {
    return factor_ ? weight(*factor_) : bottom[1]->data;
  }
  at::Tensor Spread(const at::Tensor& small) const { return small.view({1, view_[1], 1}); }
  static at::Tensor Gather(const at::Tensor& large) { return large.sum(at::IntArrayRef({0, 2})); }

  const bool multiplies_;
  std::int64_t axis_ = 0;
  Shape shape_;                // of factor and term
  Shape view_;                 // of the bottom: before, along, behind shape_
  std::optional<int> factor_;  // index among the learned blobs
  std::optional<int> term_;
  at::Tensor input_;  // kept when in place
  FusedNormalization* below_ = nullptr;  // that computes this layer too; of the same net
};

}  // namespace

std::unique_ptr<Layer> MakeScaleLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ScaleLayer>(param, context, /*multiplies=*/true);
}

std::unique_ptr<Layer> MakeBiasLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ScaleLayer>(param, context, /*multiplies=*/false);
}

}  // namespace poseidon::caffe
