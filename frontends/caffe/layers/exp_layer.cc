// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/exp.h>
#include <ATen/ops/mul.h>

#include <cmath>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// base^(shift + scale * x); a base of -1 means e.
class ExpLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const auto& options = param().exp_param();
    const auto base = static_cast<double>(options.base());
    if (base != -1 && base <= 0) return InvalidArgument("base must be above 0, or -1 for e");
    const double log_base = base == -1 ? 1 : std::log(base);
    inner_scale_ = log_base * static_cast<double>(options.scale());
    inner_shift_ = log_base * static_cast<double>(options.shift());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    at::mul_out(top[0]->data, bottom[0]->data, at::Scalar(inner_scale_));
    top[0]->data.add_(inner_shift_).exp_();
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    at::Tensor& diff = DiffOf(bottom[0]);
    at::mul_out(diff, top[0]->diff, top[0]->data);
    diff.mul_(inner_scale_);
    return OkStatus();
  }

 private:
  double inner_scale_ = 1;
  double inner_shift_ = 0;
};

}  // namespace

std::unique_ptr<Layer> MakeExpLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ExpLayer>(param, context);
}

}  // namespace poseidon::caffe
