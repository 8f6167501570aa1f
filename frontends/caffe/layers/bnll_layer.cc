// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/abs.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/mul.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// log(1 + exp(x)), without overflow.
class BnllLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    // The slope, kept because in place the bottom is gone by the time of backward.
    slope_ = at::sigmoid(bottom[0]->data);
    const at::Tensor tail = at::abs(bottom[0]->data).neg_().exp_().log1p_();
    at::clamp_min_out(top[0]->data, bottom[0]->data, 0);
    top[0]->data.add_(tail);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    at::mul_out(DiffOf(bottom[0]), top[0]->diff, slope_);
    return OkStatus();
  }

 private:
  at::Tensor slope_;
};

}  // namespace

std::unique_ptr<Layer> MakeBnllLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<BnllLayer>(param, context);
}

}  // namespace poseidon::caffe
