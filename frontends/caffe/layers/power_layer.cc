// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// (shift + scale * x)^power.
class PowerLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const double power = Option(param().power_param().power());
    // The inner value is kept: in place the bottom is gone by the time of backward.
    inner_ = at::mul(bottom[0]->data, at::Scalar(scale()))
                 .add_(Option(param().power_param().shift()));
    if (power == 1) {
      top[0]->data.copy_(inner_);
    } else {
      at::pow_out(top[0]->data, inner_, power);
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const double power = Option(param().power_param().power());
    at::Tensor& diff = DiffOf(bottom[0]);
    if (power * scale() == 0) {
      diff.zero_();
    } else if (power == 1) {
      at::mul_out(diff, top[0]->diff, at::Scalar(scale()));
    } else {
      at::mul_out(diff, top[0]->diff, at::pow(inner_, power - 1).mul_(power * scale()));
    }
    return OkStatus();
  }

 private:
  static double Option(float value) { return static_cast<double>(value); }
  double scale() const { return Option(param().power_param().scale()); }

  at::Tensor inner_;
};

}  // namespace

std::unique_ptr<Layer> MakePowerLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<PowerLayer>(param, context);
}

}  // namespace poseidon::caffe
