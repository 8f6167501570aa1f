// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/abs.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sign.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// |x|. Not in place: the sign of x would be lost.
class AbsValLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  bool works_in_place() const override { return false; }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    at::abs_out(top[0]->data, bottom[0]->data);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    at::mul_out(DiffOf(bottom[0]), top[0]->diff, at::sign(bottom[0]->data));
    return OkStatus();
  }
};

}  // namespace

std::unique_ptr<Layer> MakeAbsValLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<AbsValLayer>(param, context);
}

}  // namespace poseidon::caffe
