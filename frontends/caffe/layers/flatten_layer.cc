// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "frontends/caffe/layers/view_layer.h"

namespace poseidon::caffe {
namespace {

// Axes `axis` to `end_axis` become one.
class FlattenLayer final : public ViewLayer {
 public:
  using ViewLayer::ViewLayer;

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const Shape from = bottom[0]->shape();
    const auto axes = static_cast<std::int64_t>(from.size());
    std::int64_t first = 0;
    std::int64_t last = 0;
    const auto& options = param().flatten_param();
    POSEIDON_RETURN_IF_ERROR(CanonicalAxis("axis", options.axis(), axes, &first));
    POSEIDON_RETURN_IF_ERROR(CanonicalAxis("end_axis", options.end_axis(), axes, &last));
    if (last < first) return InvalidArgument("end_axis is before axis");
    Shape to(from.begin(), from.begin() + first);
    to.push_back(CountOf(from, first, last + 1));
    to.insert(to.end(), from.begin() + last + 1, from.end());
    return View(std::move(to), bottom, top);
  }
};

}  // namespace

std::unique_ptr<Layer> MakeFlattenLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<FlattenLayer>(param, context);
}

}  // namespace poseidon::caffe
