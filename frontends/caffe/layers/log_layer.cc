// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/log.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/reciprocal.h>

#include <cmath>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// log_base(shift + scale * x); a base of -1 means e.
class LogLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const auto base = static_cast<double>(param().log_param().base());
    if (base != -1 && (base <= 0 || base == 1)) {
      return InvalidArgument("base must be above 0 and not 1, or -1 for e");
    }
    over_log_base_ = base == -1 ? 1 : 1 / std::log(base);
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const auto& options = param().log_param();
    inner_ = at::mul(bottom[0]->data, at::Scalar(static_cast<double>(options.scale())))
                 .add_(static_cast<double>(options.shift()));
    at::log_out(top[0]->data, inner_);
    if (over_log_base_ != 1) top[0]->data.mul_(over_log_base_);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const double factor = over_log_base_ * static_cast<double>(param().log_param().scale());
    at::mul_out(DiffOf(bottom[0]), top[0]->diff, at::reciprocal(inner_).mul_(factor));
    return OkStatus();
  }

 private:
  double over_log_base_ = 1;
  at::Tensor inner_;
};

}  // namespace

std::unique_ptr<Layer> MakeLogLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<LogLayer>(param, context);
}

}  // namespace poseidon::caffe
