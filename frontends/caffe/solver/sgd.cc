// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "frontends/caffe/solver/sweep.h"

namespace poseidon::caffe {
namespace {

// h = momentum * h + rate * g; w -= h. The rate is inside the history: after it drops, old velocity
// keeps the old rate.
struct Sgd {
  static constexpr int kSlots = 1;
  double momentum;
  at::Tensor Step(const BlobUpdate& update, const at::Tensor& g) const {
    return update.history[0].mul_(momentum).add_(g, update.rate);
  }
  template <typename T>
  auto Prepare(const BlobUpdate& update) const {
    return [mu = static_cast<T>(momentum), rate = static_cast<T>(update.rate)](T g, T& h) {
      h = mu * h + rate * g;
      return h;
    };
  }
};

}  // namespace

Result<std::unique_ptr<UpdateRule>> MakeSgd(const SolverParameter& solver, Regularization kind) {
  return std::unique_ptr<UpdateRule>(
      std::make_unique<SweepRule<Sgd>>(Sgd{solver.momentum()}, kind));
}

}  // namespace poseidon::caffe
