// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/cat.h>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// The bottoms one after the other along one axis; all other axes agree.
class ConcatLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {1, Arity::kAny, 1, 1}; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const auto& options = param().concat_param();
    if (options.has_axis() && options.has_concat_dim()) {
      return InvalidArgument("has both axis and the older concat_dim, expected one");
    }
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto& options = param().concat_param();
    Shape shape = bottom[0]->shape();
    const std::int64_t asked =
        options.has_concat_dim() ? static_cast<std::int64_t>(options.concat_dim()) : options.axis();
    POSEIDON_RETURN_IF_ERROR(
        CanonicalAxis("axis", asked, static_cast<std::int64_t>(shape.size()), &axis_));
    const auto at = static_cast<std::size_t>(axis_);
    std::int64_t total = 0;
    for (std::size_t i = 0; i < bottom.size(); ++i) {
      Shape other = bottom[i]->shape();
      if (other.size() == shape.size()) {
        total += other[at];
        other[at] = shape[at];
      }
      if (other != shape) {
        return InvalidArgument("bottom " + std::to_string(i) + " has shape " +
                               ShapeText(bottom[i]->shape()) + ", bottom 0 has " +
                               ShapeText(bottom[0]->shape()) + "; they may differ in axis " +
                               std::to_string(axis_) + " only");
      }
    }
    shape[at] = total;
    if (bottom.size() == 1) return Forward(bottom, top);
    SetShape(top[0], shape, this->options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    if (bottom.size() == 1) {
      top[0]->data = bottom[0]->data;
      return OkStatus();
    }
    std::vector<at::Tensor> parts;
    for (const Blob* part : bottom) parts.push_back(part->data);
    at::cat_out(top[0]->data, parts, axis_);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (bottom.size() == 1) {
      if (propagate_down[0]) bottom[0]->diff = top[0]->diff;
      return OkStatus();
    }
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < bottom.size(); ++i) {
      const std::int64_t extent = bottom[i]->data.size(axis_);
      if (propagate_down[i]) {
        DiffOf(bottom[i]).copy_(top[0]->diff.narrow(axis_, offset, extent));
      }
      offset += extent;
    }
    return OkStatus();
  }

 private:
  std::int64_t axis_ = 1;
};

}  // namespace

std::unique_ptr<Layer> MakeConcatLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ConcatLayer>(param, context);
}

}  // namespace poseidon::caffe
