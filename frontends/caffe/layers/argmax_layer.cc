// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/sort.h>

#include <algorithm>
#include <tuple>

#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// The indices, values or both of the top_k largest elements, along `axis` or of each row as a whole.
// Of equal values the larger index comes first.
class ArgMaxLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }
  bool differentiable() const override { return false; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto& options = param().argmax_param();
    const auto sizes = bottom[0]->data.sizes();
    const std::int64_t axes = bottom[0]->data.dim();
    const auto k = static_cast<std::int64_t>(options.top_k());
    Shape shape;
    if (options.has_axis()) {
      std::int64_t axis = 0;
      POSEIDON_RETURN_IF_ERROR(CanonicalAxis("axis", options.axis(), axes, &axis));
      view_ = {CountOf(sizes, 0, axis), bottom[0]->data.size(axis), CountOf(sizes, axis + 1, axes)};
      shape = bottom[0]->shape();
      At(shape, axis) = k;
    } else {
      if (axes == 0) return InvalidArgument("bottom has no axes");
      view_ = {sizes[0], CountOf(sizes, 1, axes), 1};
      shape.assign(static_cast<std::size_t>(std::max<std::int64_t>(axes, 3)), 1);
      shape[0] = sizes[0];
      shape[1] = options.out_max_val() ? 2 : 1;
      shape[2] = k;
    }
    if (k < 1 || k > view_[1]) {
      return InvalidArgument("top_k is " + std::to_string(k) + ", but there are " +
                             std::to_string(view_[1]) + " elements");
    }
    SetShape(top[0], shape, this->options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const auto& options = param().argmax_param();
    // Reversed, the larger index comes first and a stable sort keeps it there.
    const at::Tensor reversed = bottom[0]->data.view(view_).flip({1});
    const auto [values, places] = at::sort(reversed, /*stable=*/true, /*dim=*/1, /*descending=*/true);
    const auto k = static_cast<std::int64_t>(options.top_k());
    const at::Tensor best = values.narrow(1, 0, k);
    const at::Tensor index = places.narrow(1, 0, k).neg().add_(view_[1] - 1);
    at::Tensor& out = top[0]->data;
    if (!options.out_max_val()) {
      out.view({view_[0], k, view_[2]}).copy_(index);
    } else if (options.has_axis()) {
      out.view({view_[0], k, view_[2]}).copy_(best);
    } else {
      const at::Tensor pairs = out.view({view_[0], 2, k});
      pairs.select(1, 0).copy_(index.view({view_[0], k}));
      pairs.select(1, 1).copy_(best.view({view_[0], k}));
    }
    return OkStatus();
  }

 private:
  Shape view_;  // before, along, behind the axis
};

}  // namespace

std::unique_ptr<Layer> MakeArgMaxLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ArgMaxLayer>(param, context);
}

}  // namespace poseidon::caffe
