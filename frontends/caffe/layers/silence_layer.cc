// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Reads blobs so that they are no outputs of the net.
class SilenceLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {1, Arity::kAny, 0, 0}; }

  Status Reshape(const Blobs& /*bottom*/, const Blobs& /*top*/) override { return OkStatus(); }
  Status Forward(const Blobs& /*bottom*/, const Blobs& /*top*/) override { return OkStatus(); }

  Status Backward(const Blobs& /*top*/, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    for (std::size_t i = 0; i < bottom.size(); ++i) {
      if (propagate_down[i]) DiffOf(bottom[i]).zero_();
    }
    return OkStatus();
  }
};

}  // namespace

std::unique_ptr<Layer> MakeSilenceLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<SilenceLayer>(param, context);
}

}  // namespace poseidon::caffe
