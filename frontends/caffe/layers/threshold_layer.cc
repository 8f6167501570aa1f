// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/gt.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// 1 above the threshold, 0 elsewhere; no gradient.
class ThresholdLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    top[0]->data.copy_(
        at::gt(bottom[0]->data, static_cast<double>(param().threshold_param().threshold())));
    return OkStatus();
  }

  bool differentiable() const override { return false; }
};

}  // namespace

std::unique_ptr<Layer> MakeThresholdLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ThresholdLayer>(param, context);
}

}  // namespace poseidon::caffe
