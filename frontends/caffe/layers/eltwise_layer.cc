// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/add.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/where.h>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Element by element: the sum with coefficients, the product, or the maximum of all bottoms.
class EltwiseLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, Arity::kAny, 1, 1}; }
  bool works_in_place() const override { return true; }  // by its options: see SetUp

  Status SetUp(const Blobs& bottom, const Blobs& top) override {
    const auto& options = param().eltwise_param();
    if (options.coeff_size() > 0 && options.coeff_size() != static_cast<int>(bottom.size())) {
      return InvalidArgument("has " + std::to_string(options.coeff_size()) + " coeff for " +
                             std::to_string(bottom.size()) + " bottoms");
    }
    if (options.coeff_size() > 0 && options.operation() != EltwiseParameter::SUM) {
      return InvalidArgument("coeff belongs to operation SUM only");
    }
    // Else the first bottom's gradient would replace the top's before the others are made of it.
    if (top[0] == bottom[0] && (options.operation() != EltwiseParameter::SUM || Coeff(0) != 1)) {
      return InvalidArgument("works in place only as a SUM whose first coeff is 1");
    }
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    for (std::size_t i = 1; i < bottom.size(); ++i) {
      if (bottom[i]->data.sizes() != bottom[0]->data.sizes()) {
        return InvalidArgument("bottom " + std::to_string(i) + " has shape " +
                               ShapeText(bottom[i]->data.sizes()) + ", bottom 0 has " +
                               ShapeText(bottom[0]->data.sizes()));
      }
    }
    SetShape(top[0], bottom[0]->shape(), options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    at::Tensor& out = top[0]->data;
    switch (param().eltwise_param().operation()) {
      case EltwiseParameter::SUM:
        if (Coeff(0) == 1) {
          at::add_out(out, bottom[0]->data, bottom[1]->data, Coeff(1));
        } else {
          out.copy_(bottom[0]->data).mul_(Coeff(0)).add_(bottom[1]->data, Coeff(1));
        }
        for (std::size_t i = 2; i < bottom.size(); ++i) out.add_(bottom[i]->data, Coeff(i));
        break;
      case EltwiseParameter::PROD:
        at::mul_out(out, bottom[0]->data, bottom[1]->data);
        for (std::size_t i = 2; i < bottom.size(); ++i) out.mul_(bottom[i]->data);
        break;
      case EltwiseParameter::MAX: {
        // wins_[i] marks where bottom i is the maximum. Of the first two the second wins a tie,
        // every later one has to be strictly greater.
        wins_.assign(2, {});
        wins_[0] = at::gt(bottom[0]->data, bottom[1]->data);
        wins_[1] = at::logical_not(wins_[0]);
        at::where_out(out, wins_[0], bottom[0]->data, bottom[1]->data);
        for (std::size_t i = 2; i < bottom.size(); ++i) {
          const at::Tensor greater = at::gt(bottom[i]->data, out);
          const at::Tensor others = at::logical_not(greater);
          for (at::Tensor& win : wins_) win.mul_(others);
          wins_.push_back(greater);
          out.copy_(at::where(greater, bottom[i]->data, out));
        }
        break;
      }
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    for (std::size_t i = 0; i < bottom.size(); ++i) {
      if (!propagate_down[i]) continue;
      at::Tensor& diff = DiffOf(bottom[i]);
      switch (param().eltwise_param().operation()) {
        case EltwiseParameter::SUM:
          if (Coeff(i) == 1) {
            diff.copy_(top[0]->diff);
          } else {
            at::mul_out(diff, top[0]->diff, at::Scalar(Coeff(i)));
          }
          break;
        case EltwiseParameter::PROD: BackwardProduct(top, bottom, i, &diff); break;
        case EltwiseParameter::MAX: at::mul_out(diff, top[0]->diff, wins_[i]); break;
      }
    }
    return OkStatus();
  }

 private:
  double Coeff(std::size_t i) const {
    const auto& options = param().eltwise_param();
    return options.coeff_size() == 0 ? 1.0
                                     : static_cast<double>(options.coeff(static_cast<int>(i)));
  }

  // The product of the others, or, faster and wrong at 0, the whole product over this one.
  void BackwardProduct(const Blobs& top, const Blobs& bottom, std::size_t i, at::Tensor* diff) {
    if (!param().eltwise_param().stable_prod_grad()) {
      diff->copy_(top[0]->data).div_(bottom[i]->data).mul_(top[0]->diff);
      return;
    }
    diff->copy_(top[0]->diff);
    for (std::size_t j = 0; j < bottom.size(); ++j) {
      if (j != i) diff->mul_(bottom[j]->data);
    }
  }

  std::vector<at::Tensor> wins_;
};

}  // namespace

std::unique_ptr<Layer> MakeEltwiseLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<EltwiseLayer>(param, context);
}

}  // namespace poseidon::caffe
