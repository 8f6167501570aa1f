// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Every plane the other way round, from left to right, from top to bottom, or both (caffe-windows).
class FlipLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    if (sizes.size() != 4) return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected images: four axes");
    SetShape(top[0], sizes.vec(), options());
    return OkStatus();
  }
  Status Forward(const Blobs& bottom, const Blobs& top) override {
    top[0]->data.copy_(bottom[0]->data.flip(Axes()));
    return OkStatus();
  }
  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (propagate_down[0]) DiffOf(bottom[0]).copy_(top[0]->diff.flip(Axes()));
    return OkStatus();
  }

 private:
  Shape Axes() const {
    Shape axes;
    if (param().flip_param().flip_height()) axes.push_back(2);
    if (param().flip_param().flip_width()) axes.push_back(3);
    return axes;
  }
};

}  // namespace

std::unique_ptr<Layer> MakeFlipLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<FlipLayer>(param, context);
}

}  // namespace poseidon::caffe
