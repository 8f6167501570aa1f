// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "frontends/caffe/layers/view_layer.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// The axes from `axis` on (num_axes of them) become those listed: 0 keeps the extent at its place,
// one -1 takes the rest.
class ReshapeLayer final : public ViewLayer {
 public:
  using ViewLayer::ViewLayer;

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
    Shape to(from.begin(), from.begin() + first);
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
      if (extent == -1) inferred = static_cast<std::int64_t>(to.size());
      known *= extent == -1 ? 1 : extent;
      to.push_back(extent);
    }
    const std::int64_t replaced = CountOf(from, first, last);
    if (inferred >= 0 && known != 0 && replaced % known == 0) {
      At(to, inferred) = replaced / known;
    }
    to.insert(to.end(), from.begin() + last, from.end());
    if (CountOf(to) != bottom[0]->count()) {
      return InvalidArgument("cannot make " + ShapeText(to) + " of shape " + ShapeText(from));
    }
    return View(std::move(to), bottom, top);
  }
};

}  // namespace

std::unique_ptr<Layer> MakeReshapeLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ReshapeLayer>(param, context);
}

}  // namespace poseidon::caffe
