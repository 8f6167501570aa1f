// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/index_select.h>
#include <ATen/ops/sum.h>

#include "frontends/caffe/layers/labels.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// A learned row for every index, plus a bias.
class EmbedLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }
  bool AllowForceBackward(int /*bottom*/) const override { return false; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const auto& options = param().embed_param();
    outputs_ = options.num_output();
    words_ = options.input_dim();
    if (outputs_ == 0 || words_ == 0) {
      return InvalidArgument("needs num_output and input_dim above 0");
    }
    DeclareParam({words_, outputs_}, options.weight_filler());
    if (options.bias_term()) DeclareParam({outputs_}, options.bias_filler());
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    Shape shape = bottom[0]->shape();
    shape.push_back(outputs_);
    SetShape(top[0], shape, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const ClassView view = {.axis = 1, .outer = bottom[0]->count(), .classes = words_, .inner = 1};
    POSEIDON_ASSIGN_OR_RETURN(const Labels read, ReadLabels(bottom[0]->data, view, std::nullopt, /*bad_row=*/nullptr));
    index_ = read.index.view({-1});
    at::Tensor out = top[0]->data.view({-1, outputs_});
    at::index_select_out(out, weight(0), 0, index_);
    if (param().embed_param().bias_term()) out.add_(weight(1));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& /*bottom*/) override {
    if (propagate_down[0]) return InvalidArgument("cannot propagate to indices (bottom 0)");
    const at::Tensor gradient = top[0]->diff.view({-1, outputs_});
    if (WantsParamDiff(0)) {
      auto [diff, add] = ParamDiff(0);
      if (!add) diff.zero_();
      diff.index_add_(0, index_, gradient);
    }
    if (param().embed_param().bias_term() && WantsParamDiff(1)) {
      AddParamDiff(1, at::sum(gradient, at::IntArrayRef{0}));
    }
    return OkStatus();
  }

 private:
  std::int64_t outputs_ = 0;
  std::int64_t words_ = 0;
  at::Tensor index_;
};

}  // namespace

std::unique_ptr<Layer> MakeEmbedLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<EmbedLayer>(param, context);
}

}  // namespace poseidon::caffe
