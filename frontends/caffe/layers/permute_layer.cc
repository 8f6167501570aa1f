// SPDX-License-Identifier: Apache-2.0
// Layers that put numbers in another order: Permute of SSD, ShuffleChannel of ShuffleNet.
#include <algorithm>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Axis i of the top is axis order[i] of the bottom; axes that are not named follow in their order.
class PermuteLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    const std::int64_t axes = bottom[0]->data.dim();
    for (const std::uint32_t axis : param().permute_param().order()) {
      if (axis >= axes) {
        return InvalidArgument("order names axis " + std::to_string(axis) + ", but the blob has " + std::to_string(axes) + " axes");
      }
      if (Has(axis)) return InvalidArgument("order names axis " + std::to_string(axis) + " twice");
      order_.push_back(axis);
    }
    for (std::int64_t axis = 0; axis < axes; ++axis) {
      if (!Has(axis)) order_.push_back(axis);
    }
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    if (bottom[0]->data.dim() != static_cast<std::int64_t>(order_.size())) {
      return InvalidArgument("bottom has shape " + ShapeText(bottom[0]->data.sizes()) + ", expected " + std::to_string(order_.size()) +
                             " axes as before");
    }
    SetShape(top[0], bottom[0]->data.permute(order_).sizes().vec(), options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    top[0]->data.copy_(bottom[0]->data.permute(order_));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (propagate_down[0]) DiffOf(bottom[0]).permute(order_).copy_(top[0]->diff);
    return OkStatus();
  }

 private:
  bool Has(std::int64_t axis) const { return std::find(order_.begin(), order_.end(), axis) != order_.end(); }

  Shape order_;
};

// Channel j of group i becomes channel i of group j: what the groups of one convolution made reaches all of the next.
class ShuffleChannelLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    const std::int64_t groups = param().shuffle_channel_param().group();
    if (sizes.size() < 2) return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected two axes or more");
    if (groups == 0 || sizes[1] % groups != 0) {
      return InvalidArgument("group is " + std::to_string(groups) + ", expected a divisor of the " + std::to_string(sizes[1]) +
                             " channels");
    }
    const std::int64_t places = CountOf(sizes, 2, static_cast<std::int64_t>(sizes.size()));
    in_ = {sizes[0], groups, sizes[1] / groups, places};
    out_ = {sizes[0], sizes[1] / groups, groups, places};
    SetShape(top[0], sizes.vec(), options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    top[0]->data.view(out_).copy_(bottom[0]->data.view(in_).transpose(1, 2));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (propagate_down[0]) DiffOf(bottom[0]).view(in_).copy_(top[0]->diff.view(out_).transpose(1, 2));
    return OkStatus();
  }

 private:
  Shape in_;
  Shape out_;
};

}  // namespace

std::unique_ptr<Layer> MakePermuteLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<PermuteLayer>(param, context);
}

std::unique_ptr<Layer> MakeShuffleChannelLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ShuffleChannelLayer>(param, context);
}

}  // namespace poseidon::caffe
