// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_GRADIENT_SYNC_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_GRADIENT_SYNC_H_

#include <cstdint>
#include <span>

#include "poseidon/base/status.h"

namespace poseidon::caffe {

// The solver's view of whoever averages gradients over workers. One worker without a network has
// none (a null pointer); the distributed trainer implements it over a poseidon::session::Session.
// Layers are numbered as in Net::layers().
//
// Thread: every member is called on the solver's thread, in the order
//   BeginStep(t), [WantsFactors], GradientReady(layer, weight) for each learnable layer in backward order,
//   Await(layer) for each learnable layer (in the next forward's order, or as AwaitAny names them).
class GradientSync {
 public:
  virtual ~GradientSync() = default;

  // Iteration `step` begins: no forward pass of it has run. May wait for a plan to be agreed.
  virtual Status BeginStep(std::uint64_t step) = 0;

  // True when `layer` shall hand over its factors (output errors and inputs) in this step and not
  // compute its weight and bias gradient. Fixed from BeginStep until the step's gradients are
  // ready.
  virtual bool WantsFactors(int layer) const = 0;

  // The gradient of `layer` (its flat diff), or its factors, summed over the iter_size passes, is
  // complete and lent until Await(layer) returns. `weight` is this worker's in the mean over the workers, the same for all
  // layers of a step; 0 on all of them: they count alike. Returns at once.
  virtual Status GradientReady(int layer, std::uint32_t weight) = 0;

  // Blocks until the mean over the workers of the gradient of `layer` is in its flat diff.
  virtual Status Await(int layer) = 0;

  // Blocks until Await would not for one of `layers`, at least one, all ready and not yet awaited;
  // returns the first such in the order given.
  virtual int AwaitAny(std::span<const int> layers) = 0;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_GRADIENT_SYNC_H_
