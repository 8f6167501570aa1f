// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/aten_engine.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>

#include <string>

#include "frontends/caffe/engine/engine.h"

namespace poseidon::caffe {
namespace {

class AtenEngine final : public factors::ProductEngine {
 public:
  explicit AtenEngine(int threads) : threads_(threads) {}

  Status Multiply(const Product& p) override {
    if (p.dtype != DType::kF32 && p.dtype != DType::kF64) {
      return Unimplemented("the product engine multiplies f32 and f64");
    }
    // The number of threads is a property of the calling thread in ATen.
    if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
    return RunOnEngine([&] {
      const auto options = at::TensorOptions().dtype(p.dtype == DType::kF64 ? at::kDouble : at::kFloat);
      const auto rows = static_cast<std::int64_t>(p.rows);
      const auto outputs = static_cast<std::int64_t>(p.outputs);
      const auto inputs = static_cast<std::int64_t>(p.inputs);
      const at::Tensor u = at::from_blob(const_cast<std::byte*>(p.u), {rows, outputs}, options);
      const at::Tensor v = at::from_blob(const_cast<std::byte*>(p.v), {rows, inputs}, options);
      at::Tensor out = at::from_blob(p.out, {outputs, inputs}, options);
      // beta 0: what `out` held is not read.
      at::addmm_out(out, out, u.t(), v, 0, p.alpha);
      return OkStatus();
    });
  }

  std::string description() const override {
    return "ATen " + at::show_config().substr(0, 200) + ", threads " + std::to_string(threads_);
  }

 private:
  const int threads_;
};

}  // namespace

std::unique_ptr<factors::ProductEngine> MakeAtenEngine(int threads) {
  return std::make_unique<AtenEngine>(threads);
}

}  // namespace poseidon::caffe
