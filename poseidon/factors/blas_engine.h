// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FACTORS_BLAS_ENGINE_H_
#define POSEIDON_FACTORS_BLAS_ENGINE_H_

#include <memory>
#include <string>

#include "poseidon/factors/engine.h"

namespace poseidon::factors {

// The default engine for programs that bring none, for f32 and f64: the BLAS in `file` (sgemm_ and dgemm_ with
// 32-bit integers, or the OpenBLAS inside NumPy's wheels), or where it is empty that of a PyTorch that this process has
// loaded, else the system's OpenBLAS. None is linked, so that libposeidon.so runs without them. Null where none is found.
// `threads` is fixed for its lifetime (OpenBLAS keeps one number per process).
std::unique_ptr<ProductEngine> MakeBlasEngine(int threads, const std::string& file = "");

}  // namespace poseidon::factors

#endif  // POSEIDON_FACTORS_BLAS_ENGINE_H_
