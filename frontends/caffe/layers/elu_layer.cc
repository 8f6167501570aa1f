// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/where.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// x above 0, alpha * (exp(x) - 1) elsewhere.
class EluLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const at::Tensor& in = bottom[0]->data;
    positive_ = at::gt(in, 0);
    top[0]->data.copy_(at::where(positive_, in, at::clamp_max(in, 0).expm1_().mul_(alpha())));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    // Below 0 the slope alpha * exp(x) is the output plus alpha.
    const at::Tensor& gradient = top[0]->diff;
    DiffOf(bottom[0]).copy_(
        at::where(positive_, gradient, top[0]->data.add(alpha()).mul_(gradient)));
    return OkStatus();
  }

 private:
  double alpha() const { return static_cast<double>(param().elu_param().alpha()); }

  at::Tensor positive_;
};

}  // namespace

std::unique_ptr<Layer> MakeEluLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<EluLayer>(param, context);
}

}  // namespace poseidon::caffe
