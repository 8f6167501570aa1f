// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// One step of an LSTM. Bottoms: the cell before [1, N, D], the sums of the gates i, f, o, g [1, N, 4D], and cont [1, N], 0
// where a stream begins anew. Tops: the cell and the output, [1, N, D] each:
//   c = cont sigmoid(f) c_before + sigmoid(i) tanh(g);  h = sigmoid(o) tanh(c)
class LstmUnitLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {3, 3, 2, 2}; }
  bool AllowForceBackward(int bottom) const override { return bottom != 2; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const Shape cell = bottom[0]->shape();
    const Shape gates = bottom[1]->shape();
    const Shape cont = bottom[2]->shape();
    if (cell.size() != 3 || cell[0] != 1 || gates != Shape{1, cell[1], 4 * cell[2]} || cont != Shape{1, cell[1]}) {
      return InvalidArgument("has bottoms of shape " + ShapeText(cell) + ", " + ShapeText(gates) + " and " + ShapeText(cont) +
                             ", expected 1xNxD, 1xNx4D and 1xN");
    }
    for (Blob* blob : top) SetShape(blob, cell, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const std::int64_t width = bottom[0]->data.size(2);
    const auto gate = [&](std::int64_t index) { return bottom[1]->data.narrow(2, index * width, width); };
    cont_ = bottom[2]->data.view({1, -1, 1});
    i_ = at::sigmoid(gate(0));
    f_ = at::sigmoid(gate(1));
    o_ = at::sigmoid(gate(2));
    g_ = at::tanh(gate(3));
    at::mul_out(top[0]->data, f_, cont_);
    top[0]->data.mul_(bottom[0]->data).addcmul_(i_, g_);
    tanh_c_ = at::tanh(top[0]->data);
    at::mul_out(top[1]->data, o_, tanh_c_);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (propagate_down[2]) return InvalidArgument("cannot propagate to cont (bottom 2)");
    const auto slope = [](const at::Tensor& s) { return s.mul(s.neg().add_(1)); };            // of sigmoid
    const auto tanh_slope = [](const at::Tensor& t) { return t.mul(t).neg_().add_(1); };
    const at::Tensor dh = top[1]->diff;
    const at::Tensor dc = dh.mul(o_).mul_(tanh_slope(tanh_c_)).add_(top[0]->diff);
    if (propagate_down[1]) {
      const at::Tensor df = dc.mul(bottom[0]->data).mul_(cont_).mul_(slope(f_));
      at::cat_out(DiffOf(bottom[1]),
                  {dc.mul(g_).mul_(slope(i_)), df, dh.mul(tanh_c_).mul_(slope(o_)), dc.mul(i_).mul_(tanh_slope(g_))}, 2);
    }
    if (propagate_down[0]) at::mul_out(DiffOf(bottom[0]), dc.mul(f_), cont_);
    return OkStatus();
  }

 private:
  // Of the last Forward.
  at::Tensor cont_;
  at::Tensor i_, f_, o_, g_;
  at::Tensor tanh_c_;
};

}  // namespace

std::unique_ptr<Layer> MakeLstmUnitLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<LstmUnitLayer>(param, context);
}

}  // namespace poseidon::caffe
