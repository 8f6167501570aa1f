// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/device_products.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/net/filler.h"
#include "frontends/caffe/net/net.h"
#include "frontends/caffe/net/random.h"
#include "frontends/caffe/train/cuda_driver.h"
#include "poseidon/plan/layer_clock.h"

namespace poseidon::caffe {
namespace {

std::int64_t Signed(std::uint64_t number) { return static_cast<std::int64_t>(number); }

void Multiply(const at::Tensor& u, const at::Tensor& v, const plan::FactorShape& shape, const at::Tensor& gradient) {
  const std::int64_t weights = Signed(shape.outputs * shape.inputs);
  at::Tensor weight = gradient.narrow(0, 0, weights).view({Signed(shape.outputs), Signed(shape.inputs)});
  at::mm_out(weight, u.t(), v);
  if (!shape.bias) return;
  at::Tensor bias = gradient.narrow(0, weights, Signed(shape.outputs));
  at::sum_out(bias, u, at::IntArrayRef{0});
}

// In [-1, 1), the same on every worker.
at::Tensor FixedNumbers(std::uint64_t seed, std::int64_t rows, std::int64_t width, const at::TensorOptions& options) {
  FillerParameter uniform;
  uniform.set_type("uniform");
  uniform.set_min(-1);
  uniform.set_max(1);
  at::Tensor numbers = at::empty({rows, width}, options);
  static_cast<void>(Fill(uniform, RandomStream(seed, RandomPurpose::kFiller, "product test", 0), numbers));
  return numbers;
}

}  // namespace

// Two kinds of device may agree on one product and not on another one.
std::string KindOf(const Placement& placement) {
  if (placement.on_host()) return placement.name();
  std::string kind = std::string(TORCH_VERSION) + " " + placement.name();
  kind.resize(kind.find_last_of(':'));  // not which one it is
  const Result<CudaDriver> driver = CudaDriver::Load();
  if (!driver.ok()) return kind;
  const Result<std::string> name = driver->NameOf(placement.device().index());
  return name.ok() ? kind + " " + *name : kind;
}

Result<factors::ProductTest> TestOnDevice(const plan::FactorShape& shape, DType dtype, std::uint64_t rows, const Placement& placement) {
  factors::ProductTest test;
  test.flops = shape.product_flops(rows);
  POSEIDON_RETURN_IF_ERROR(RunOnEngine([&] {
    const at::TensorOptions options = at::TensorOptions().dtype(ScalarTypeOf(dtype)).device(placement.device());
    const at::Tensor u = FixedNumbers(1, Signed(rows), Signed(shape.outputs), options);
    const at::Tensor v = FixedNumbers(2, Signed(rows), Signed(shape.inputs), options);
    const at::Tensor gradient = at::empty({Signed(shape.outputs * shape.inputs + (shape.bias ? shape.outputs : 0))}, options);
    for (int repeat = 0; repeat < 3; ++repeat) {
      placement.Synchronize();
      const TimePoint begin = plan::SteadyNow();
      Multiply(u, v, shape, gradient);
      placement.Synchronize();
      const double seconds = ToSeconds(plan::SteadyNow() - begin);
      test.seconds = repeat == 0 ? seconds : std::min(test.seconds, seconds);
    }
    const at::Tensor host = OnHost(gradient);
    const ConstBytes bits(static_cast<const std::byte*>(host.const_data_ptr()), static_cast<std::size_t>(host.nbytes()));
    test.hash = factors::HashOf(bits) ^ NameHash(KindOf(placement));
    return OkStatus();
  }));
  return test;
}

// The session's memory is not pinned, and a copy from there would make the host wait for all that was launched before.
void GatheredProduct::Multiply(const factors::GatheredRows& gathered, const at::Tensor& gradient) {
  const EngineGuard guard;
  const std::int64_t rows = Signed(gathered.rows());
  if (rows == 0) {
    gradient.zero_();
    return;
  }
  const auto bring = [&](const std::byte* memory, std::uint64_t width, Upload& upload) {
    const at::Tensor there = at::empty({rows, Signed(width)}, gradient.options());
    const at::Tensor pinned = upload.Memory(there);
    std::memcpy(pinned.mutable_data_ptr(), memory, static_cast<std::size_t>(pinned.nbytes()));
    upload.Copy(there);
    return there;
  };
  const at::Tensor u = bring(gathered.u(), shape_.outputs, u_);
  caffe::Multiply(u, bring(gathered.v(), shape_.inputs, v_), shape_, gradient);
}

}  // namespace poseidon::caffe
