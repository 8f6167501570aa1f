// SPDX-License-Identifier: Apache-2.0
#include "poseidon/factors/blas_engine.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace poseidon::factors {
namespace {

// BLAS level 3, as Fortran has it: matrices by column, every argument by its address. Int is the library's integer.
template <typename T, typename Int>
using Gemm = void (*)(const char* trans_a, const char* trans_b, const Int* m, const Int* n, const Int* k, const T* alpha,
                      const T* a, const Int* lda, const T* b, const Int* ldb, const T* beta, T* c, const Int* ldc);

// The names of a library's functions, and the width of its integers.
struct Names {
  const char* sgemm;
  const char* dgemm;
  const char* set_threads;
  const char* configuration;
  bool wide;  // integers of 64 bits
};
constexpr Names kUsual = {"sgemm_", "dgemm_", "openblas_set_num_threads", "openblas_get_config", false};
// The OpenBLAS inside NumPy's wheels, and inside those of NumPy 1.
constexpr Names kOfNumpy = {"scipy_sgemm_64_", "scipy_dgemm_64_", "scipy_openblas_set_num_threads64_",
                            "scipy_openblas_get_config64_", true};
constexpr Names kOfNumpy1 = {"sgemm_64_", "dgemm_64_", "openblas_set_num_threads64_", "openblas_get_config64_", true};

// The library that was found in this process. It is never unloaded: its threads would lose their code.
struct Blas {
  void* sgemm = nullptr;
  void* dgemm = nullptr;
  bool wide = false;
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
  if (library == nullptr) return nullptr;
  for (const Names& names : {kUsual, kOfNumpy, kOfNumpy1}) {
    auto blas = std::make_unique<Blas>();
    if (!Find(library, names.sgemm, &blas->sgemm) || !Find(library, names.dgemm, &blas->dgemm)) continue;
    blas->wide = names.wide;
    void (*set_threads)(int) = nullptr;
    char* (*configuration)() = nullptr;
    if (Find(library, names.set_threads, &set_threads)) set_threads(threads);
    const bool mkl = Find(library, "MKL_Set_Num_Threads_Local", &blas->set_threads_of_caller);
    blas->name =
        Find(library, names.configuration, &configuration) ? configuration() : (mkl ? "MKL in " : "BLAS in ") + file;
    return blas;
  }
  return nullptr;
}

// An engine's own BLAS before the system's: it is newer as a rule. Debian 12's OpenBLAS knows no processor of the years after
// it, and falls back to kernels of 2004, a quarter as fast.
std::unique_ptr<Blas> FindBlas(const std::string& file, int threads) {
  if (!file.empty()) return Load(file, 0, threads);
  // PyTorch's CPU library exports the BLAS that it was linked with.
  // NOLOAD: only where the process has loaded PyTorch already.
  if (std::unique_ptr<Blas> blas = Load("libtorch_cpu.so", RTLD_NOLOAD, threads)) return blas;
  return Load("libopenblas.so.0", 0, threads);
}

class BlasEngine final : public ProductEngine {
 public:
  BlasEngine(std::unique_ptr<Blas> blas, int threads) : blas_(std::move(blas)), threads_(threads) {}

  Status Multiply(const Product& product) override {
    // Set in each call: in MKL the number is of the calling thread, and Load may have run on another.
    if (blas_->set_threads_of_caller != nullptr) blas_->set_threads_of_caller(threads_);
    if (!blas_->wide && std::max({product.rows, product.outputs, product.inputs}) > kMostNarrow) {
      return Unimplemented("a product of " + std::to_string(product.rows) + " rows for " +
                           std::to_string(product.outputs) + " x " + std::to_string(product.inputs) +
                           " was asked of " + blas_->name + ", expected at most " + std::to_string(kMostNarrow) +
                           " of each");
    }
    switch (product.dtype) {
      case DType::kF32: Run<float>(blas_->sgemm, product); return OkStatus();
      case DType::kF64: Run<double>(blas_->dgemm, product); return OkStatus();
      default: return Unimplemented("the BLAS engine multiplies f32 and f64");
    }
  }

  std::string description() const override { return blas_->name + ", threads " + std::to_string(threads_); }

 private:
  // What a BLAS of 32-bit integers counts to.
  static constexpr std::uint64_t kMostNarrow = std::numeric_limits<std::int32_t>::max();

  template <typename T>
  void Run(void* gemm, const Product& product) {
    if (blas_->wide) return Run<T, std::int64_t>(reinterpret_cast<Gemm<T, std::int64_t>>(gemm), product);
    Run<T, std::int32_t>(reinterpret_cast<Gemm<T, std::int32_t>>(gemm), product);
  }

  // out = alpha u^T v by row is out^T = alpha v^T u by column, where v by row is v^T by column already.
  template <typename T, typename Int>
  static void Run(Gemm<T, Int> gemm, const Product& p) {
    const auto outputs = static_cast<Int>(p.outputs);
    const auto inputs = static_cast<Int>(p.inputs);
    const auto rows = static_cast<Int>(p.rows);
    const T alpha = static_cast<T>(p.alpha);
    // With a beta of 0 BLAS does not read its output: `out` may hold anything, NaNs too.
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

}  // namespace poseidon::factors
