// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "frontends/caffe/solver/sweep.h"

namespace poseidon::caffe {
namespace {

// h is the sum of all squared gradients; the step is rate * g / (sqrt(h) + delta).
struct AdaGrad {
  static constexpr int kSlots = 1;
  double delta;
  at::Tensor Step(const BlobUpdate& update, const at::Tensor& g) const {
    const at::Tensor& h = update.history[0].addcmul_(g, g);
    return g.div(h.sqrt().add_(delta)).mul_(update.rate);
  }
  template <typename T>
  auto Prepare(const BlobUpdate& update) const {
    return [d = static_cast<T>(delta), rate = static_cast<T>(update.rate)](T g, T& h) {
      h += g * g;
      return rate * (g / (std::sqrt(h) + d));
    };
  }
};

}  // namespace

Result<std::unique_ptr<UpdateRule>> MakeAdaGrad(const SolverParameter& solver,
                                                Regularization kind) {
  if (solver.momentum() != 0) {
    return InvalidArgument("solver type AdaGrad takes no momentum, got " +
                           std::to_string(solver.momentum()));
  }
  return std::unique_ptr<UpdateRule>(
      std::make_unique<SweepRule<AdaGrad>>(AdaGrad{solver.delta()}, kind));
}

}  // namespace poseidon::caffe
