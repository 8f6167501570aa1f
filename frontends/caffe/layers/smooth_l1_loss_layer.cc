// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/clamp.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>

#include "frontends/caffe/layers/labels.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// The sum of w_out * f(w_in * (a - b)) over a divisor, with f(d) = 0.5 * (sigma * d)^2 where |d| < 1 / sigma^2 and
// |d| - 0.5 / sigma^2 elsewhere. Bottoms: a and b; a, b and w_in (Fast R-CNN, SSD, R-FCN); or a, b, w_in and w_out (py-faster-rcnn).
//
// The divisor is the number of images. Where loss_param says a normalization, or a second top (the loss of each place, R-FCN)
// is there, it is R-FCN's: places of all images (FULL and VALID, its default), images, a number, or 1.
// The forks' own backward passes leave w_in out where there is no w_out: the same for weights of 0 and 1.
class SmoothL1LossLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 4, 1, 2}; }
  bool is_loss() const override { return true; }
  bool AllowForceBackward(int bottom) const override { return bottom < 2; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    if (sizes.empty()) return InvalidArgument("bottom is a scalar, expected images");
    for (std::size_t i = 1; i < bottom.size(); ++i) {
      const auto other = bottom[i]->data.sizes();
      if (other.empty() || other[0] != sizes[0] || CountOf(other) != CountOf(sizes)) {
        return InvalidArgument("compares shapes " + ShapeText(sizes) + " and " + ShapeText(other) + ", expected equal ones");
      }
    }
    const auto axes = static_cast<std::int64_t>(sizes.size());
    view_ = {sizes[0], axes > 1 ? sizes[1] : 1, CountOf(sizes, std::min<std::int64_t>(2, axes), axes)};
    SetShape(top[0], {}, options());
    if (top.size() > 1) SetShape(top[1], {view_[0], 1, axes > 2 ? sizes[2] : 1, axes > 3 ? CountOf(sizes, 3, axes) : 1}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    difference_ = at::sub(bottom[0]->data.view(view_), bottom[1]->data.view(view_));
    if (bottom.size() > 2) difference_.mul_(bottom[2]->data.view(view_));
    const double square = Sigma2();
    const at::Tensor size = difference_.abs();
    at::Tensor errors = at::where(size.lt(1 / square), difference_.mul(difference_).mul_(0.5 * square), size.sub(0.5 / square));
    if (bottom.size() > 3) errors.mul_(bottom[3]->data.view(view_));
    normalizer_ = Divisor(top.size() > 1);
    top[0]->data.copy_(errors.sum().div_(normalizer_));
    if (top.size() > 1) top[1]->data.copy_(errors.sum(1).view(top[1]->data.sizes()));
    return OkStatus();
  }

  // f'(d) is sigma^2 * d, but no more than 1 or less than -1.
  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    for (std::size_t i = 2; i < bottom.size(); ++i) {
      if (propagate_down[i]) return InvalidArgument("cannot propagate to weights (bottom " + std::to_string(i) + ")");
    }
    at::Tensor slope = difference_.mul(Sigma2()).clamp_(-1, 1).mul_(top[0]->diff.item<double>() / normalizer_);
    if (bottom.size() > 2) slope.mul_(bottom[2]->data.view(view_));
    if (bottom.size() > 3) slope.mul_(bottom[3]->data.view(view_));
    if (propagate_down[0]) DiffOf(bottom[0]).copy_(slope.view(bottom[0]->data.sizes()));
    if (propagate_down[1]) DiffOf(bottom[1]).copy_(slope.neg().view(bottom[1]->data.sizes()));
    return OkStatus();
  }

 private:
  double Sigma2() const {
    const auto sigma = static_cast<double>(param().smooth_l1_loss_param().sigma());
    return sigma * sigma;
  }
  double Divisor(bool per_place) const {
    const LossParameter& loss = param().loss_param();
    const bool normalizes = per_place || loss.has_normalization() || loss.has_normalize() || param().type() == "SmoothL1LossOHEM";
    if (!normalizes) return static_cast<double>(view_[0]);
    return Normalizer(loss, LossParameter::VALID, {.axis = 1, .outer = view_[0], .classes = view_[1], .inner = view_[2]},
                      view_[0] * view_[2]);
  }

  Shape view_;  // images, channels, places
  at::Tensor difference_;  // w_in * (a - b)
  double normalizer_ = 1;
};

}  // namespace

std::unique_ptr<Layer> MakeSmoothL1LossLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<SmoothL1LossLayer>(param, context);
}

}  // namespace poseidon::caffe
