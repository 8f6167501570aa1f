// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/add.h>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// One blob for several readers: the tops are the bottom, the gradient is the sum of theirs in order.
class SplitLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {1, 1, 1, Arity::kAny}; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override { return Forward(bottom, top); }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    for (Blob* reader : top) reader->data = bottom[0]->data;
    return OkStatus();
  }

  // A reader that gives no gradient leaves its diff undefined: it adds nothing.
  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    at::Tensor& sum = DiffOf(bottom[0]);
    const Blob* first = nullptr;
    bool started = false;
    for (const Blob* reader : top) {
      if (!reader->diff.defined()) continue;
      if (started) {
        sum.add_(reader->diff);
      } else if (first != nullptr) {
        at::add_out(sum, first->diff, reader->diff);
        started = true;
      } else {
        first = reader;
      }
    }
    if (first == nullptr) {
      sum.zero_();
    } else if (!started) {
      sum.copy_(first->diff);
    }
    return OkStatus();
  }
};

}  // namespace

std::unique_ptr<Layer> MakeSplitLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<SplitLayer>(param, context);
}

}  // namespace poseidon::caffe
