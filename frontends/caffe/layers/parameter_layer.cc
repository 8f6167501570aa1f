// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// A learned blob as a top.
class ParameterLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {0, 0, 1, 1}; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const auto& dims = param().parameter_param().shape().dim();
    DeclareParam(Shape(dims.begin(), dims.end()), FillerParameter());
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override { return Forward(bottom, top); }

  Status Forward(const Blobs& /*bottom*/, const Blobs& top) override {
    top[0]->data = weight(0);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& /*propagate_down*/,
                  const Blobs& /*bottom*/) override {
    if (WantsParamDiff(0)) AddParamDiff(0, top[0]->diff);
    return OkStatus();
  }
};

}  // namespace

std::unique_ptr<Layer> MakeParameterLayer(const LayerParameter& param,
                                          const LayerContext& context) {
  return std::make_unique<ParameterLayer>(param, context);
}

}  // namespace poseidon::caffe
