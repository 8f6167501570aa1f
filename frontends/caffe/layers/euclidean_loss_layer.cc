// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/dot.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Half the mean over rows of |a - b|^2.
class EuclideanLossLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 1}; }
  bool is_loss() const override { return true; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const at::Tensor& a = bottom[0]->data;
    const at::Tensor& b = bottom[1]->data;
    if (a.dim() == 0 || b.dim() == 0 || a.size(0) != b.size(0) || a.numel() != b.numel()) {
      return InvalidArgument("compares shapes " + ShapeText(a.sizes()) + " and " +
                             ShapeText(b.sizes()) + ", expected equal rows and counts");
    }
    SetShape(top[0], {}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    difference_ = at::sub(bottom[0]->data, bottom[1]->data.view(bottom[0]->data.sizes()));
    const at::Tensor flat = difference_.view({-1});
    top[0]->data.copy_(at::dot(flat, flat).div_(2 * Rows(bottom)));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    const double scale = top[0]->diff.item<double>() / Rows(bottom);
    for (std::size_t i = 0; i < 2; ++i) {
      if (!propagate_down[i]) continue;
      at::mul_out(DiffOf(bottom[i]), difference_.view(bottom[i]->data.sizes()),
                  at::Scalar(i == 0 ? scale : -scale));
    }
    return OkStatus();
  }

 private:
  static double Rows(const Blobs& bottom) {
    return static_cast<double>(bottom[0]->data.size(0));
  }

  at::Tensor difference_;
};

}  // namespace

std::unique_ptr<Layer> MakeEuclideanLossLayer(const LayerParameter& param,
                                              const LayerContext& context) {
  return std::make_unique<EuclideanLossLayer>(param, context);
}

}  // namespace poseidon::caffe
