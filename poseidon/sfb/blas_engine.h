// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SFB_BLAS_ENGINE_H_
#define POSEIDON_SFB_BLAS_ENGINE_H_

#include <memory>

#include "poseidon/sfb/engine.h"

namespace poseidon::sfb {

// The default engine for programs that bring none: CBLAS (OpenBLAS), for f32 and f64. `threads` is
// fixed for its lifetime (OpenBLAS keeps one number per process).
std::unique_ptr<ProductEngine> MakeBlasEngine(int threads);

}  // namespace poseidon::sfb

#endif  // POSEIDON_SFB_BLAS_ENGINE_H_
