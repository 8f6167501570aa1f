// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <utility>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Fully connected: the axes from `axis` on are one vector of N inputs, of which M outputs are made.
// The weight is [M, N], or [N, M] with `transpose`.
class InnerProductLayer final : public Layer, public FactorSource {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }
  FactorSource* factors() override { return this; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    const auto& options = param().inner_product_param();
    outputs_ = options.num_output();
    if (outputs_ == 0) return InvalidArgument("needs num_output above 0");
    POSEIDON_RETURN_IF_ERROR(
        CanonicalAxis("axis", options.axis(), bottom[0]->data.dim(), &axis_));
    inputs_ = CountOf(bottom[0]->data.sizes(), axis_, bottom[0]->data.dim());
    DeclareParam(options.transpose() ? Shape{inputs_, outputs_} : Shape{outputs_, inputs_},
                 options.weight_filler());
    if (has_bias()) DeclareParam({outputs_}, options.bias_filler());
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const Shape from = bottom[0]->shape();
    const auto axes = static_cast<std::int64_t>(from.size());
    if (axes <= axis_ || CountOf(from, axis_, axes) != inputs_) {
      return InvalidArgument("bottom has shape " + ShapeText(from) + ", but the weight of shape " +
                             ShapeText(blobs()[0].data.sizes()) + " takes " +
                             std::to_string(inputs_) + " inputs from axis " +
                             std::to_string(axis_) + " on");
    }
    rows_ = CountOf(from, 0, axis_);
    Shape to(from.begin(), from.begin() + axis_);
    to.push_back(outputs_);
    SetShape(top[0], to, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    at::Tensor out = Rows(top[0]->data, outputs_);
    const at::Tensor in = Rows(bottom[0]->data, inputs_);
    if (has_bias()) {
      at::addmm_out(out, weight(1), in, InputsByOutputs());
    } else {
      at::mm_out(out, in, InputsByOutputs());
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    const at::Tensor u = Rows(top[0]->diff, outputs_);
    const at::Tensor v = Rows(bottom[0]->data, inputs_);
    if (capturing_) {
      // Copies: the tensors of the blobs are written again in the next pass.
      captured_.push_back({u.clone(), v.clone()});
      LeaveParamDiffs();
    } else {
      if (WantsParamDiff(0)) {
        if (transpose()) {
          Accumulate(ParamDiff(0), v.t(), u);
        } else {
          Accumulate(ParamDiff(0), u.t(), v);
        }
      }
      if (has_bias() && WantsParamDiff(1)) {
        auto [diff, add] = ParamDiff(1);
        if (add) {
          diff.add_(at::sum(u, at::IntArrayRef{0}));
        } else {
          at::sum_out(diff, u, at::IntArrayRef{0});
        }
      }
    }
    if (propagate_down[0]) {
      at::Tensor diff = Rows(DiffOf(bottom[0]), inputs_);
      at::mm_out(diff, u, InputsByOutputs().t());
    }
    return OkStatus();
  }

  bool FactorCapable() const override {
    for (int i = 0; i < static_cast<int>(blobs().size()); ++i) {
      if (ParamShared(i) || !WantsParamDiff(i)) return false;
    }
    return !transpose();
  }
  std::int64_t K() const override { return rows_; }
  std::int64_t M() const override { return outputs_; }
  std::int64_t N() const override { return inputs_; }
  bool has_bias() const override { return param().inner_product_param().bias_term(); }
  void CaptureFactors(bool on) override {
    capturing_ = on;
    captured_.clear();
  }
  std::vector<FactorPair> TakeFactors() override { return std::exchange(captured_, {}); }

 private:
  bool transpose() const { return param().inner_product_param().transpose(); }
  at::Tensor InputsByOutputs() { return transpose() ? weight(0) : weight(0).t(); }
  at::Tensor Rows(const at::Tensor& blob, std::int64_t width) const {
    return blob.view({rows_, width});
  }

  static void Accumulate(DiffTarget target, const at::Tensor& a, const at::Tensor& b) {
    if (target.add) {
      target.diff.addmm_(a, b);
    } else {
      at::mm_out(target.diff, a, b);
    }
  }

  std::int64_t axis_ = 1;
  std::int64_t rows_ = 0;     // K
  std::int64_t outputs_ = 0;  // M
  std::int64_t inputs_ = 0;   // N
  bool capturing_ = false;
  std::vector<FactorPair> captured_;
};

}  // namespace

std::unique_ptr<Layer> MakeInnerProductLayer(const LayerParameter& param,
                                             const LayerContext& context) {
  return std::make_unique<InnerProductLayer>(param, context);
}

}  // namespace poseidon::caffe
