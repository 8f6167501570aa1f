// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "frontends/caffe/solver/sweep.h"

namespace poseidon::caffe {
namespace {

// Running means of the gradient (h0, decay momentum) and of its square (h1, decay momentum2), both
// corrected for their start at zero by one factor on the rate; delta is outside the correction.
struct Adam {
  static constexpr int kSlots = 2;
  double beta1;
  double beta2;
  double delta;
  double Correction(const BlobUpdate& update) const {
    const auto t = static_cast<double>(update.iteration + 1);
    return std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
  }
  at::Tensor Step(const BlobUpdate& update, const at::Tensor& g) const {
    const at::Tensor& m = update.history[0].mul_(beta1).add_(g, 1 - beta1);
    const at::Tensor& v = update.history[1].mul_(beta2).addcmul_(g, g, 1 - beta2);
    return m.div(v.sqrt().add_(delta)).mul_(update.rate * Correction(update));
  }
  template <typename T>
  auto Prepare(const BlobUpdate& update) const {
    const double correction = Correction(update);
    return [b1 = static_cast<T>(beta1), b2 = static_cast<T>(beta2), d = static_cast<T>(delta),
            rate = static_cast<T>(update.rate * correction)](T g, T& m, T& v) {
      m = (1 - b1) * g + b1 * m;
      v = (1 - b2) * (g * g) + b2 * v;
      return rate * (m / (std::sqrt(v) + d));
    };
  }
};

bool Below1(float value) { return value >= 0 && value < 1; }

}  // namespace

Result<std::unique_ptr<UpdateRule>> MakeAdam(const SolverParameter& solver, Regularization kind) {
  if (!Below1(solver.momentum()) || !Below1(solver.momentum2())) {
    return InvalidArgument(
        "solver type Adam needs momentum and momentum2 of at least 0 and below 1, " +
        ("got " + std::to_string(solver.momentum())) + " and " +
        std::to_string(solver.momentum2()));
  }
  return std::unique_ptr<UpdateRule>(std::make_unique<SweepRule<Adam>>(
      Adam{solver.momentum(), solver.momentum2(), solver.delta()}, kind));
}

}  // namespace poseidon::caffe
