// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sfb/blas_engine.h"

#include <dlfcn.h>

#include <cstdint>
#include <string>
#include <utility>

namespace poseidon::sfb {
namespace {

// BLAS level 3, as Fortran has it: matrices by column, every argument by its address.
template <typename T>
using Gemm = void (*)(const char* trans_a, const char* trans_b, const std::int32_t* m, const std::int32_t* n,
                      const std::int32_t* k, const T* alpha, const T* a, const std::int32_t* lda, const T* b,
                      const std::int32_t* ldb, const T* beta, T* c, const std::int32_t* ldc);

// The library that was found in this process. It is never unloaded: its threads would lose their code.
struct Blas {
  Gemm<float> sgemm = nullptr;
  Gemm<double> dgemm = nullptr;
  int (*set_threads_of_caller)(int) = nullptr;  // where the number is each thread's own
  std::string name;
};

template <typename Function>
bool Find(void* library, const char* symbol, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, symbol));
  return *function != nullptr;
}

// Null where there is no such library, or it is no BLAS.
std::unique_ptr<Blas> Load(const std::string& file, int flags, int threads) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
  auto blas = std::make_unique<Blas>();
  if (library == nullptr || !Find(library, "sgemm_", &blas->sgemm) || !Find(library, "dgemm_", &blas->dgemm)) {
    return nullptr;
  }
  void (*set_threads)(int) = nullptr;
  char* (*configuration)() = nullptr;
  if (Find(library, "openblas_set_num_threads", &set_threads)) set_threads(threads);
  const bool mkl = Find(library, "MKL_Set_Num_Threads_Local", &blas->set_threads_of_caller);
  blas->name = Find(library, "openblas_get_config", &configuration) ? configuration()
                                                                    : (mkl ? "MKL in " : "BLAS in ") + file;
  return blas;
}

std::unique_ptr<Blas> FindBlas(const std::string& file, int threads) {
  if (!file.empty()) return Load(file, 0, threads);
  if (std::unique_ptr<Blas> blas = Load("libopenblas.so.0", 0, threads)) return blas;
  // PyTorch's CPU library exports the BLAS that it was linked with.
  return Load("libtorch_cpu.so", RTLD_NOLOAD, threads);
}

class BlasEngine final : public ProductEngine {
 public:
  BlasEngine(std::unique_ptr<Blas> blas, int threads) : blas_(std::move(blas)), threads_(threads) {}

  Status Multiply(const Product& product) override {
    if (blas_->set_threads_of_caller != nullptr) blas_->set_threads_of_caller(threads_);
    switch (product.dtype) {
      case DType::kF32: Run(blas_->sgemm, product); return OkStatus();
      case DType::kF64: Run(blas_->dgemm, product); return OkStatus();
      default: return Unimplemented("the BLAS engine multiplies f32 and f64");
    }
  }

  std::string description() const override { return blas_->name + ", threads " + std::to_string(threads_); }

 private:
  // out = alpha u^T v by row is out^T = alpha v^T u by column, where v by row is v^T by column already.
  template <typename T>
  static void Run(Gemm<T> gemm, const Product& p) {
    const auto outputs = static_cast<std::int32_t>(p.outputs);
    const auto inputs = static_cast<std::int32_t>(p.inputs);
    const auto rows = static_cast<std::int32_t>(p.rows);
    const T alpha = static_cast<T>(p.alpha);
    const T zero = 0;
    gemm("N", "T", &inputs, &outputs, &rows, &alpha, reinterpret_cast<const T*>(p.v), &inputs,
         reinterpret_cast<const T*>(p.u), &outputs, &zero, reinterpret_cast<T*>(p.out), &inputs);
  }

  const std::unique_ptr<Blas> blas_;
  const int threads_;
};

}  // namespace

std::unique_ptr<ProductEngine> MakeBlasEngine(int threads, const std::string& file) {
  std::unique_ptr<Blas> blas = FindBlas(file, threads);
  return blas != nullptr ? std::make_unique<BlasEngine>(std::move(blas), threads) : nullptr;
}

}  // namespace poseidon::sfb
