// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/cat.h>

#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// Cuts the bottom along one axis, at the given points or into equal parts.
class SliceLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {1, 1, 1, Arity::kAny}; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto& options = param().slice_param();
    if (options.has_axis() && options.has_slice_dim()) {
      return InvalidArgument("has both axis and the older slice_dim, expected one");
    }
    Shape shape = bottom[0]->shape();
    const std::int64_t asked =
        options.has_slice_dim() ? static_cast<std::int64_t>(options.slice_dim()) : options.axis();
    POSEIDON_RETURN_IF_ERROR(
        CanonicalAxis("axis", asked, static_cast<std::int64_t>(shape.size()), &axis_));
    POSEIDON_RETURN_IF_ERROR(Cut(At(shape, axis_), top.size()));
    for (std::size_t i = 0; i < top.size(); ++i) {
      At(shape, axis_) = extents_[i];
      SetShape(top[i], shape, this->options());
    }
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < top.size(); ++i) {
      top[i]->data.copy_(bottom[0]->data.narrow(axis_, offset, extents_[i]));
      offset += extents_[i];
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    std::vector<at::Tensor> parts;
    for (const Blob* part : top) parts.push_back(part->diff);
    at::cat_out(DiffOf(bottom[0]), parts, axis_);
    return OkStatus();
  }

 private:
  Status Cut(std::int64_t total, std::size_t parts) {
    const auto& points = param().slice_param().slice_point();
    extents_.clear();
    if (points.empty()) {
      const auto count = static_cast<std::int64_t>(parts);
      if (total % count != 0) {
        return InvalidArgument("cannot cut " + std::to_string(total) + " into " +
                               std::to_string(count) + " equal parts");
      }
      extents_.assign(parts, total / count);
      return OkStatus();
    }
    if (points.size() + 1 != static_cast<int>(parts)) {
      return InvalidArgument("has " + std::to_string(points.size()) + " slice_point for " +
                             std::to_string(parts) + " tops, expected one fewer than tops");
    }
    std::int64_t previous = 0;
    for (const std::int64_t point : points) {
      if (point <= previous || point >= total) {
        return InvalidArgument("slice_point " + std::to_string(point) +
                               " is not above the previous one and below " +
                               std::to_string(total));
      }
      extents_.push_back(point - previous);
      previous = point;
    }
    extents_.push_back(total - previous);
    return OkStatus();
  }

  std::int64_t axis_ = 1;
  std::vector<std::int64_t> extents_;
};

}  // namespace

std::unique_ptr<Layer> MakeSliceLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<SliceLayer>(param, context);
}

}  // namespace poseidon::caffe
