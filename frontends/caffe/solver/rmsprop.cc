// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "frontends/caffe/solver/sweep.h"

namespace poseidon::caffe {
namespace {

// h is a running mean of squared gradients; the step is rate * g / (sqrt(h) + delta).
struct RmsProp {
  static constexpr int kSlots = 1;
  double decay;
  double delta;
  at::Tensor Step(const BlobUpdate& update, const at::Tensor& g) const {
    const at::Tensor& h = update.history[0].mul_(decay).addcmul_(g, g, 1 - decay);
    return g.div(h.sqrt().add_(delta)).mul_(update.rate);
  }
  template <typename T>
  auto Prepare(const BlobUpdate& update) const {
    return [rho = static_cast<T>(decay), rest = static_cast<T>(1 - decay),
            d = static_cast<T>(delta), rate = static_cast<T>(update.rate)](T g, T& h) {
      h = rest * (g * g) + rho * h;
      return rate * (g / (std::sqrt(h) + d));
    };
  }
};

}  // namespace

Result<std::unique_ptr<UpdateRule>> MakeRmsProp(const SolverParameter& solver,
                                                Regularization kind) {
  if (solver.momentum() != 0) {
    return InvalidArgument("solver type RMSProp takes no momentum, got " +
                           std::to_string(solver.momentum()));
  }
  if (solver.rms_decay() < 0 || solver.rms_decay() >= 1) {
    return InvalidArgument("solver type RMSProp needs rms_decay of at least 0 and below 1, got " +
                           std::to_string(solver.rms_decay()));
  }
  return std::unique_ptr<UpdateRule>(
      std::make_unique<SweepRule<RmsProp>>(RmsProp{solver.rms_decay(), solver.delta()}, kind));
}

}  // namespace poseidon::caffe
