// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// The tops are the bottoms. In the fork they have the rows of all workers, and every worker computes the loss of all; here each has that
// of its own rows, and the mean of the workers' gradients is the same gradient.
class GatherLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {1, Arity::kAny, 1, Arity::kAny, true}; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override { return Forward(bottom, top); }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    for (std::size_t i = 0; i < bottom.size(); ++i) top[i]->data = bottom[i]->data;
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    for (std::size_t i = 0; i < bottom.size(); ++i) {
      if (propagate_down[i]) bottom[i]->diff = top[i]->diff;
    }
    return OkStatus();
  }
};

}  // namespace

std::unique_ptr<Layer> MakeGatherLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<GatherLayer>(param, context);
}

}  // namespace poseidon::caffe
