// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// Repeats the bottom along one axis.
class TileLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    Shape shape = bottom[0]->shape();
    const auto axes = static_cast<std::int64_t>(shape.size());
    std::int64_t axis = 0;
    POSEIDON_RETURN_IF_ERROR(CanonicalAxis("axis", param().tile_param().axis(), axes, &axis));
    tiles_ = param().tile_param().tiles();
    if (tiles_ < 1) return InvalidArgument("needs tiles above 0");
    outer_ = CountOf(shape, 0, axis);
    inner_ = CountOf(shape, axis, axes);
    At(shape, axis) *= tiles_;
    SetShape(top[0], shape, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    top[0]->data.view({outer_, tiles_, inner_})
        .copy_(bottom[0]->data.view({outer_, 1, inner_}).expand({outer_, tiles_, inner_}));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    DiffOf(bottom[0]).view({outer_, inner_}).copy_(
        top[0]->diff.view({outer_, tiles_, inner_}).sum(at::IntArrayRef{1}));
    return OkStatus();
  }

 private:
  std::int64_t outer_ = 1;
  std::int64_t tiles_ = 1;
  std::int64_t inner_ = 1;
};

}  // namespace

std::unique_ptr<Layer> MakeTileLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<TileLayer>(param, context);
}

}  // namespace poseidon::caffe
