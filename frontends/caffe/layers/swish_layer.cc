// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// x * sigmoid(beta * x).
class SwishLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    input_ = bottom[0]->data.clone();
    gate_ = at::mul(input_, at::Scalar(beta())).sigmoid_();
    at::mul_out(top[0]->data, input_, gate_);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    // d/dx = beta * y + gate * (1 - beta * y)
    const at::Tensor scaled = input_.mul(gate_).mul_(beta());
    const at::Tensor slope = scaled.neg().add_(1).mul_(gate_).add_(scaled);
    at::mul_out(DiffOf(bottom[0]), top[0]->diff, slope);
    return OkStatus();
  }

 private:
  double beta() const { return static_cast<double>(param().swish_param().beta()); }

  at::Tensor input_;
  at::Tensor gate_;
};

}  // namespace

std::unique_ptr<Layer> MakeSwishLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<SwishLayer>(param, context);
}

}  // namespace poseidon::caffe
