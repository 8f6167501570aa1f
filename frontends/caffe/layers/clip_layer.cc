// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/clamp.h>
#include <ATen/ops/mul.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// x, but not below min and not above max.
class ClipLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const auto& options = param().clip_param();
    if (!options.has_min() || !options.has_max()) return InvalidArgument("needs min and max");
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const double low = static_cast<double>(param().clip_param().min());
    const double high = static_cast<double>(param().clip_param().max());
    inside_ = bottom[0]->data.ge(low).logical_and_(bottom[0]->data.le(high));
    at::clamp_out(top[0]->data, bottom[0]->data, low, high);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    at::mul_out(DiffOf(bottom[0]), top[0]->diff, inside_);
    return OkStatus();
  }

 private:
  at::Tensor inside_;
};

}  // namespace

std::unique_ptr<Layer> MakeClipLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ClipLayer>(param, context);
}

}  // namespace poseidon::caffe
