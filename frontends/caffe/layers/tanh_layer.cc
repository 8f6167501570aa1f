// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

class TanhLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    at::tanh_out(top[0]->data, bottom[0]->data);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    at::tanh_backward_out(DiffOf(bottom[0]), top[0]->diff, top[0]->data);
    return OkStatus();
  }
};

}  // namespace

std::unique_ptr<Layer> MakeTanhLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<TanhLayer>(param, context);
}

}  // namespace poseidon::caffe
