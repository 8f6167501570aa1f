// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sfb/blas_engine.h"

#include <cblas.h>

#include <string>

namespace poseidon::sfb {
namespace {

class BlasEngine final : public ProductEngine {
 public:
  explicit BlasEngine(int threads) : threads_(threads) { openblas_set_num_threads(threads); }

  Status Multiply(const Product& p) override {
    const auto m = static_cast<blasint>(p.outputs);
    const auto n = static_cast<blasint>(p.inputs);
    const auto k = static_cast<blasint>(p.rows);
    switch (p.dtype) {
      case DType::kF32:
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, k, static_cast<float>(p.alpha),
                    reinterpret_cast<const float*>(p.u), m, reinterpret_cast<const float*>(p.v), n,
                    0.0f, reinterpret_cast<float*>(p.out), n);
        return OkStatus();
      case DType::kF64:
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, k, p.alpha,
                    reinterpret_cast<const double*>(p.u), m, reinterpret_cast<const double*>(p.v),
                    n, 0.0, reinterpret_cast<double*>(p.out), n);
        return OkStatus();
      default: return Unimplemented("the BLAS engine multiplies f32 and f64");
    }
  }

  std::string description() const override {
    return std::string(openblas_get_config()) + ", threads " + std::to_string(threads_);
  }

 private:
  const int threads_;
};

}  // namespace

std::unique_ptr<ProductEngine> MakeBlasEngine(int threads) {
  return std::make_unique<BlasEngine>(threads);
}

}  // namespace poseidon::sfb
