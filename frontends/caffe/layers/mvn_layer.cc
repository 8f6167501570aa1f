// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Subtracts the mean of each plane (of each image with across_channels) and divides by its standard
// deviation plus eps.
class MvnLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }
  bool works_in_place() const override { return true; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    Shape shape = bottom[0]->shape();
    if (shape.size() > 4) {
      return InvalidArgument("bottom has shape " + ShapeText(shape) + ", expected at most 4 axes");
    }
    shape.resize(4, 1);
    const std::int64_t rows =
        param().mvn_param().across_channels() ? shape[0] : shape[0] * shape[1];
    view_ = {rows, rows == 0 ? 0 : bottom[0]->count() / rows};
    if (top[0] != bottom[0]) SetShape(top[0], shape, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const at::Tensor in = bottom[0]->data.view(view_);
    normalized_ = in.sub(in.mean(at::IntArrayRef{1}, true));
    if (param().mvn_param().normalize_variance()) {
      deviation_ = normalized_.mul(normalized_)
                       .mean(at::IntArrayRef{1}, true)
                       .sqrt_()
                       .add_(static_cast<double>(param().mvn_param().eps()));
      normalized_.div_(deviation_);
    }
    top[0]->data.view(view_).copy_(normalized_);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const at::Tensor gradient = top[0]->diff.view(view_);
    at::Tensor result = gradient.sub(gradient.mean(at::IntArrayRef{1}, true));
    if (param().mvn_param().normalize_variance()) {
      const at::Tensor along = gradient.mul(normalized_).mean(at::IntArrayRef{1}, true);
      result.sub_(normalized_.mul(along)).div_(deviation_);
    }
    DiffOf(bottom[0]).view(view_).copy_(result);
    return OkStatus();
  }

 private:
  Shape view_;  // what is normalised together is one row
  at::Tensor normalized_;
  at::Tensor deviation_;
};

}  // namespace

std::unique_ptr<Layer> MakeMvnLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<MvnLayer>(param, context);
}

}  // namespace poseidon::caffe
