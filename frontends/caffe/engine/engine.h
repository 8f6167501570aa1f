// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_ENGINE_ENGINE_H_
#define POSEIDON_FRONTENDS_CAFFE_ENGINE_ENGINE_H_

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>

#include <exception>
#include <utility>

#include "frontends/caffe/engine/engine_failure.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// While it lives, ATen operators of this thread go straight to their kernels: nothing is recorded
// for automatic differentiation and no version is counted. Tensors made under it are ordinary.
class EngineGuard {
 public:
  EngineGuard() : no_grad_(false) {}

 private:
  c10::AutoGradMode no_grad_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
};

// Runs `work` (returning a Status) under an EngineGuard; what ATen throws becomes a Status of one line.
template <typename Work>
Status RunOnEngine(Work&& work) {
  EngineGuard guard;
  try {
    return std::forward<Work>(work)();
  } catch (const std::exception& error) {
    return EngineFailure(error);
  }
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_ENGINE_ENGINE_H_
