// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/gt.h>
#include <ATen/ops/where.h>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// x above 0, a learned slope times x elsewhere; one slope per channel, or one for all.
class PReluLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    const auto& options = param().prelu_param();
    if (bottom[0]->data.dim() < 2) {
      return InvalidArgument("bottom has shape " + ShapeText(bottom[0]->data.sizes()) +
                             ", expected two axes or more");
    }
    channels_ = bottom[0]->data.size(1);
    FillerParameter filler = options.filler();
    if (!options.has_filler()) filler.set_value(0.25F);
    DeclareParam(options.channel_shared() ? Shape{} : Shape{channels_}, filler);
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    if (bottom[0]->data.dim() < 2 || bottom[0]->data.size(1) != channels_) {
      return InvalidArgument("bottom has shape " + ShapeText(bottom[0]->data.sizes()) +
                             ", expected " + std::to_string(channels_) + " channels");
    }
    return NeuronLayer::Reshape(bottom, top);
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    input_ = top[0] == bottom[0] ? bottom[0]->data.clone() : bottom[0]->data;
    top[0]->data.copy_(at::where(at::gt(input_, 0), input_, input_.mul(Slope())));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    const at::Tensor positive = at::gt(input_, 0);
    if (WantsParamDiff(0)) {
      const at::Tensor below = top[0]->diff.mul(input_).masked_fill_(positive, 0);
      AddParamDiff(0, param().prelu_param().channel_shared()
                          ? below.sum()
                          : below.view({below.size(0), channels_, -1})
                                .sum(at::IntArrayRef({0, 2})));
    }
    if (propagate_down[0]) {
      const at::Tensor& gradient = top[0]->diff;
      DiffOf(bottom[0]).copy_(at::where(positive, gradient, gradient.mul(Slope())));
    }
    return OkStatus();
  }

 private:
  // The slopes, ready to be spread over the blob.
  at::Tensor Slope() {
    if (param().prelu_param().channel_shared()) return weight(0);
    Shape shape(static_cast<std::size_t>(input_.dim()), 1);
    shape[1] = channels_;
    return weight(0).view(shape);
  }

  std::int64_t channels_ = 0;
  at::Tensor input_;
};

}  // namespace

std::unique_ptr<Layer> MakePReluLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<PReluLayer>(param, context);
}

}  // namespace poseidon::caffe
