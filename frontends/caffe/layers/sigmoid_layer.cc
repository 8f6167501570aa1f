// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

class SigmoidLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    at::sigmoid_out(top[0]->data, bottom[0]->data);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    at::sigmoid_backward_out(DiffOf(bottom[0]), top[0]->diff, top[0]->data);
    return OkStatus();
  }
};

}  // namespace

std::unique_ptr<Layer> MakeSigmoidLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<SigmoidLayer>(param, context);
}

}  // namespace poseidon::caffe
