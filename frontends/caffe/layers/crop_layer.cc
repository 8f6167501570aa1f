// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Cuts the first bottom to the extents of the second from `axis` on, starting at `offset`.
class CropLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 1}; }
  bool AllowForceBackward(int bottom) const override { return bottom == 0; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto& options = param().crop_param();
    const auto axes = static_cast<std::int64_t>(bottom[0]->data.dim());
    POSEIDON_RETURN_IF_ERROR(CanonicalAxis("axis", options.axis(), axes, &axis_));
    if (options.offset_size() > 1 && options.offset_size() != axes - axis_) {
      return InvalidArgument("has " + std::to_string(options.offset_size()) + " offset for " +
                             std::to_string(axes - axis_) + " axes, expected one or one for each");
    }
    if (bottom[1]->data.dim() != axes) {
      return InvalidArgument("cannot crop " + ShapeText(bottom[0]->data.sizes()) + " like " +
                             ShapeText(bottom[1]->data.sizes()) + ", the axes differ in number");
    }
    Shape shape = bottom[0]->shape();
    offsets_.assign(shape.size(), 0);
    for (std::int64_t axis = axis_; axis < axes; ++axis) {
      const auto at = static_cast<std::size_t>(axis);
      if (options.offset_size() > 0) {
        offsets_[at] = options.offset(
            options.offset_size() == 1 ? 0 : static_cast<int>(axis - axis_));
      }
      const std::int64_t wanted = bottom[1]->data.size(axis);
      if (offsets_[at] + wanted > shape[at]) {
        return InvalidArgument("crop of " + std::to_string(wanted) + " at offset " +
                               std::to_string(offsets_[at]) + " exceeds axis " +
                               std::to_string(axis) + " of shape " +
                               ShapeText(bottom[0]->data.sizes()));
      }
      shape[at] = wanted;
    }
    SetShape(top[0], shape, this->options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    top[0]->data.copy_(Cut(bottom[0]->data, top[0]->data.sizes()));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (propagate_down[1]) DiffOf(bottom[1]).zero_();
    if (!propagate_down[0]) return OkStatus();
    Cut(DiffOf(bottom[0]).zero_(), top[0]->data.sizes()).copy_(top[0]->diff);
    return OkStatus();
  }

 private:
  at::Tensor Cut(at::Tensor whole, at::IntArrayRef extents) const {
    for (std::size_t axis = 0; axis < offsets_.size(); ++axis) {
      whole = whole.narrow(static_cast<std::int64_t>(axis), offsets_[axis], extents[axis]);
    }
    return whole;
  }

  std::int64_t axis_ = 2;
  Shape offsets_;
};

}  // namespace

std::unique_ptr<Layer> MakeCropLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<CropLayer>(param, context);
}

}  // namespace poseidon::caffe
