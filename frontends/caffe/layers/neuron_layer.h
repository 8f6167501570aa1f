// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_NEURON_LAYER_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_NEURON_LAYER_H_

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {

// One bottom, one top of the same shape, in place where the layer does not say otherwise.
class NeuronLayer : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }
  bool works_in_place() const override { return true; }
  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    SetShape(top[0], bottom[0]->shape(), options());
    return OkStatus();
  }
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_NEURON_LAYER_H_
