// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Axes `axis` to `end_axis` become one; the top is a view of the bottom.
class FlattenLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const Shape from = bottom[0]->shape();
    const auto axes = static_cast<std::int64_t>(from.size());
    std::int64_t first = 0;
    std::int64_t last = 0;
    const auto& options = param().flatten_param();
    POSEIDON_RETURN_IF_ERROR(CanonicalAxis("axis", options.axis(), axes, &first));
    POSEIDON_RETURN_IF_ERROR(CanonicalAxis("end_axis", options.end_axis(), axes, &last));
    if (last < first) return InvalidArgument("end_axis is before axis");
    shape_.assign(from.begin(), from.begin() + first);
    shape_.push_back(CountOf(from, first, last + 1));
    shape_.insert(shape_.end(), from.begin() + last + 1, from.end());
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

std::unique_ptr<Layer> MakeFlattenLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<FlattenLayer>(param, context);
}

}  // namespace poseidon::caffe
