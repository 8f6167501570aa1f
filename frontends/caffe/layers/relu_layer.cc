// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward.h>
#include <ATen/ops/threshold_backward.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// x > 0 ? x : negative_slope * x.
class ReluLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    if (slope() == 0) {
      at::clamp_min_out(top[0]->data, bottom[0]->data, 0);
    } else {
      at::leaky_relu_out(top[0]->data, bottom[0]->data, slope());
    }
    return OkStatus();
  }

  // In place the sign of the output is that of the input; else the output may be another layer's by now.
  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    at::Tensor& diff = DiffOf(bottom[0]);
    if (slope() == 0) {
      at::threshold_backward_out(diff, top[0]->diff, bottom[0]->data, 0);
    } else {
      at::leaky_relu_backward_out(diff, top[0]->diff, bottom[0]->data, slope(), false);
    }
    return OkStatus();
  }

 private:
  double slope() const { return static_cast<double>(param().relu_param().negative_slope()); }
};

}  // namespace

std::unique_ptr<Layer> MakeReluLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ReluLayer>(param, context);
}

}  // namespace poseidon::caffe
