// SPDX-License-Identifier: Apache-2.0
// Losses of numbers against numbers: AbsLoss and AngleLoss.
#include <ATen/ops/acos.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// The sum of |a - b| over the rows of a.
class AbsLossLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 1}; }
  bool is_loss() const override { return true; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto a = bottom[0]->data.sizes(), b = bottom[1]->data.sizes();
    if (a.empty() || b.empty() || a[0] != b[0] || CountOf(a) != CountOf(b)) {
      return InvalidArgument("compares shapes " + ShapeText(a) + " and " + ShapeText(b) + ", expected equal rows and counts");
    }
    SetShape(top[0], {}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    difference_ = at::sub(bottom[0]->data, bottom[1]->data.view(bottom[0]->data.sizes()));
    top[0]->data.copy_(difference_.abs().sum().div_(bottom[0]->data.size(0)));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    const double scale = top[0]->diff.item<double>() / static_cast<double>(bottom[0]->data.size(0));
    for (std::size_t i = 0; i < 2; ++i) {
      if (!propagate_down[i]) continue;
      at::mul_out(DiffOf(bottom[i]), difference_.sign().view(bottom[i]->data.sizes()), at::Scalar(i == 0 ? scale : -scale));
    }
    return OkStatus();
  }

 private:
  at::Tensor difference_;
};

// The sum over places of the angle between two vectors of length 1 along the channels, divided by the images. A place is left out where
// the first number of the second bottom is beyond 10: no normal is known there (3D normals and poses).
class AngleLossLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 1}; }
  bool is_loss() const override { return true; }
  bool AllowForceBackward(int bottom) const override { return bottom == 0; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto a = bottom[0]->data.sizes(), b = bottom[1]->data.sizes();
    if (a.size() < 2 || b.empty() || a[0] != b[0] || CountOf(a) != CountOf(b)) {
      return InvalidArgument("compares shapes " + ShapeText(a) + " and " + ShapeText(b) + ", expected equal rows and counts, and channels");
    }
    view_ = {a[0], a[1], CountOf(a, 2, static_cast<std::int64_t>(a.size()))};
    SetShape(top[0], {}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const at::Tensor wanted = bottom[1]->data.view(view_);
    known_ = wanted.narrow(1, 0, 1).abs().le(kUnknown);
    cosine_ = bottom[0]->data.view(view_).mul(wanted).sum(at::IntArrayRef({1}), /*keepdim=*/true).clamp_(-1, 1);
    top[0]->data.copy_(at::acos(cosine_).masked_fill_(known_.logical_not(), 0).sum().div_(view_[0]));
    return OkStatus();
  }

  // d acos(c) = -1 / sqrt(1 - c^2), at most 1e6: the fork adds 1e-6 to the divisor.
  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (propagate_down[1]) return InvalidArgument("cannot propagate to labels (bottom 1)");
    if (!propagate_down[0]) return OkStatus();
    const double scale = -top[0]->diff.item<double>() / static_cast<double>(view_[0]);
    const at::Tensor sine = cosine_.square().neg_().add_(1).sqrt_().clamp_min_(kSmallestSine);
    const at::Tensor slope = sine.reciprocal_().mul_(scale).masked_fill_(known_.logical_not(), 0);
    DiffOf(bottom[0]).view(view_).copy_(bottom[1]->data.view(view_).mul(slope).masked_fill_(known_.logical_not(), 0));
    return OkStatus();
  }

 private:
  static constexpr double kUnknown = 10, kSmallestSine = 1e-6;
  Shape view_;  // images, channels, places
  at::Tensor known_, cosine_;
};

}  // namespace

std::unique_ptr<Layer> MakeAbsLossLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<AbsLossLayer>(param, context);
}

std::unique_ptr<Layer> MakeAngleLossLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<AngleLossLayer>(param, context);
}

}  // namespace poseidon::caffe
