// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "frontends/caffe/solver/sweep.h"

namespace poseidon::caffe {
namespace {

// Running means of squared gradients (h0) and of squared steps before the rate (h1), with momentum
// as their decay; the step is rate * g * sqrt((h1 + delta) / (h0 + delta)).
struct AdaDelta {
  static constexpr int kSlots = 2;
  double momentum;
  double delta;
  at::Tensor Step(const BlobUpdate& update, const at::Tensor& g) const {
    const at::Tensor& of_gradients = update.history[0].mul_(momentum).addcmul_(g, g, 1 - momentum);
    const at::Tensor& of_steps = update.history[1];
    const at::Tensor step = of_steps.add(delta).div_(of_gradients.add(delta)).sqrt_().mul_(g);
    of_steps.mul_(momentum).addcmul_(step, step, 1 - momentum);
    return step.mul(update.rate);
  }
  template <typename T>
  auto Prepare(const BlobUpdate& update) const {
    return [mu = static_cast<T>(momentum), d = static_cast<T>(delta),
            rate = static_cast<T>(update.rate)](T g, T& h0, T& h1) {
      h0 = (1 - mu) * (g * g) + mu * h0;
      const T step = g * std::sqrt((d + h1) / (d + h0));
      h1 = (1 - mu) * (step * step) + mu * h1;
      return rate * step;
    };
  }
};

}  // namespace

Result<std::unique_ptr<UpdateRule>> MakeAdaDelta(const SolverParameter& solver,
                                                 Regularization kind) {
  return std::unique_ptr<UpdateRule>(
      std::make_unique<SweepRule<AdaDelta>>(AdaDelta{solver.momentum(), solver.delta()}, kind));
}

}  // namespace poseidon::caffe
