// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "frontends/caffe/solver/sweep.h"

namespace poseidon::caffe {
namespace {

// h as in SGD; the step looks ahead: (1 + momentum) * h - momentum * (h before).
struct Nesterov {
  static constexpr int kSlots = 1;
  double momentum;
  at::Tensor Step(const BlobUpdate& update, const at::Tensor& g) const {
    const at::Tensor& h = update.history[0];
    const at::Tensor before = h.clone();
    h.mul_(momentum).add_(g, update.rate);
    return h.mul(1 + momentum).sub_(before, momentum);
  }
  template <typename T>
  auto Prepare(const BlobUpdate& update) const {
    return [mu = static_cast<T>(momentum), rate = static_cast<T>(update.rate)](T g, T& h) {
      const T before = h;
      h = mu * h + rate * g;
      return (1 + mu) * h - mu * before;
    };
  }
};

}  // namespace

Result<std::unique_ptr<UpdateRule>> MakeNesterov(const SolverParameter& solver,
                                                 Regularization kind) {
  return std::unique_ptr<UpdateRule>(
      std::make_unique<SweepRule<Nesterov>>(Nesterov{solver.momentum()}, kind));
}

}  // namespace poseidon::caffe
