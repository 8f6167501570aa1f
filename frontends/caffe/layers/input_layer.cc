// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/zeros.h>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Tops whose numbers the caller writes; zero before that. The caller may give a top another shape:
// the layers above follow.
class InputLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {0, 0, 1, Arity::kAny}; }
  bool differentiable() const override { return false; }

  Status Reshape(const Blobs& /*bottom*/, const Blobs& top) override {
    const auto& shapes = param().input_param().shape();
    if (shapes.size() > 1 && shapes.size() != static_cast<int>(top.size())) {
      return InvalidArgument("has " + std::to_string(shapes.size()) + " shapes for " +
                             std::to_string(top.size()) + " tops, expected one or one for each");
    }
    if (shapes.empty()) return InvalidArgument("has no input_param { shape { dim: ... } }");
    for (std::size_t i = 0; i < top.size(); ++i) {
      const auto& dims = shapes.Get(shapes.size() == 1 ? 0 : static_cast<int>(i)).dim();
      for (const std::int64_t dim : dims) {
        if (dim < 0) return InvalidArgument("has a negative dim in its shape");
      }
      top[i]->data = at::zeros(Shape(dims.begin(), dims.end()), options());
    }
    return OkStatus();
  }
  Status Forward(const Blobs& /*bottom*/, const Blobs& /*top*/) override { return OkStatus(); }
};

}  // namespace

std::unique_ptr<Layer> MakeInputLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<InputLayer>(param, context);
}

}  // namespace poseidon::caffe
