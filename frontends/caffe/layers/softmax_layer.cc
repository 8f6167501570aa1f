// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

class SoftmaxLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_RETURN_IF_ERROR(CanonicalAxis("axis", param().softmax_param().axis(),
                                           bottom[0]->data.dim(), &axis_));
    return NeuronLayer::Reshape(bottom, top);
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    if (top[0] == bottom[0]) {
      top[0]->data = at::_softmax(bottom[0]->data, axis_, false);
    } else {
      at::_softmax_out(top[0]->data, bottom[0]->data, axis_, false);
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    bottom[0]->diff =
        at::_softmax_backward_data(top[0]->diff, top[0]->data, axis_, context().dtype);
    return OkStatus();
  }

 private:
  std::int64_t axis_ = 1;
};

}  // namespace

std::unique_ptr<Layer> MakeSoftmaxLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<SoftmaxLayer>(param, context);
}

}  // namespace poseidon::caffe
