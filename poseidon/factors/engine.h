// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FACTORS_ENGINE_H_
#define POSEIDON_FACTORS_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "poseidon/base/status.h"
#include "poseidon/tensor/dtype.h"

namespace poseidon::factors {

// The one matrix product that a front end supplies (ATen, BLAS, cuBLAS). Everything that can change
// its bits is fixed: one product on one contiguous 64-byte aligned concatenation of all ranks' rows,
// always with the same transposition, on a fixed number of threads.
class ProductEngine {
 public:
  virtual ~ProductEngine() = default;

  struct Product {
    DType dtype = DType::kF32;
    const std::byte* u = nullptr;  // [rows x outputs], row-major, 64-byte aligned
    const std::byte* v = nullptr;  // [rows x inputs], row-major, 64-byte aligned
    std::uint64_t rows = 0;        // at least 1
    std::uint64_t outputs = 0;
    std::uint64_t inputs = 0;
    double alpha = 1.0;
    std::byte* out = nullptr;  // [outputs x inputs], row-major: alpha * u^T v, overwritten
  };
  // Thread: called on the session's compute executor, one product at a time.
  virtual Status Multiply(const Product& product) = 0;

  // Name, version and threads: messages name by it the members whose engines differ.
  virtual std::string description() const = 0;
};

}  // namespace poseidon::factors

#endif  // POSEIDON_FACTORS_ENGINE_H_
