// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// The same numbers under another shape; the top is a view of the bottom. The axes from `axis` on
// (num_axes of them) become those listed: 0 keeps the extent at its place, one -1 takes the rest.
class ReshapeLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto& options = param().reshape_param();
    const Shape from = bottom[0]->shape();
    const auto axes = static_cast<std::int64_t>(from.size());
    // The axis may be behind the last one: new axes of extent 1 are then appended.
    const std::int64_t first = options.axis() >= 0 ? options.axis() : axes + options.axis() + 1;
    const std::int64_t last = options.num_axes() == -1 ? axes : first + options.num_axes();
    if (first < 0 || first > axes || last > axes || options.num_axes() < -1) {
      return InvalidArgument("axis " + std::to_string(options.axis()) + " and num_axes " +
                             std::to_string(options.num_axes()) + " do not fit shape " +
                             ShapeText(from));
    }
    shape_.assign(from.begin(), from.begin() + first);
    std::int64_t inferred = -1;
    std::int64_t known = 1;
    for (int i = 0; i < options.shape().dim_size(); ++i) {
      std::int64_t extent = options.shape().dim(i);
      if (extent == 0) {
        if (first + i >= axes) {
          return InvalidArgument("dim 0 at place " + std::to_string(i) +
                                 " has no axis to copy from in shape " + ShapeText(from));
        }
        extent = At(from, first + i);
      }
      if (extent < -1 || (extent == -1 && inferred >= 0)) {
        return InvalidArgument("takes at most one dim -1 and no other below 0");
      }
      if (extent == -1) inferred = static_cast<std::int64_t>(shape_.size());
      known *= extent == -1 ? 1 : extent;
      shape_.push_back(extent);
    }
    const std::int64_t replaced = CountOf(from, first, last);
    if (inferred >= 0 && known != 0 && replaced % known == 0) {
      At(shape_, inferred) = replaced / known;
    }
    shape_.insert(shape_.end(), from.begin() + last, from.end());
    if (CountOf(shape_) != bottom[0]->count()) {
      return InvalidArgument("cannot make " + ShapeText(shape_) + " of shape " + ShapeText(from));
    }
    return Forward(bottom, top);
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    top[0]->data = bottom[0]->data.view(shape_);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (propagate_down[0]) bottom[0]->diff = top[0]->diff.view(bottom[0]->data.sizes());
    return OkStatus();
  }

 private:
  Shape shape_;
};

}  // namespace

std::unique_ptr<Layer> MakeReshapeLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ReshapeLayer>(param, context);
}

}  // namespace poseidon::caffe
