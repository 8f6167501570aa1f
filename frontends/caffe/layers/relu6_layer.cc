// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/clamp.h>
#include <ATen/ops/hardtanh_backward.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// x cut to [0, 6] (MobileNet's ports).
class Relu6Layer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    if (top[0] == bottom[0]) input_ = bottom[0]->data.clone();
    at::clamp_out(top[0]->data, bottom[0]->data, at::Scalar(0), at::Scalar(6));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    const at::Tensor& input = top[0] == bottom[0] ? input_ : bottom[0]->data;
    if (propagate_down[0]) at::hardtanh_backward_out(DiffOf(bottom[0]), top[0]->diff, input, 0, 6);
    return OkStatus();
  }

 private:
  at::Tensor input_;  // kept when in place: a layer above may have scaled what is there by now
};

}  // namespace

std::unique_ptr<Layer> MakeRelu6Layer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<Relu6Layer>(param, context);
}

}  // namespace poseidon::caffe
