// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/gradient_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/net/placement.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// One partial sum per block, whoever computes it; eight lanes inside, so that it can be vectorised.
constexpr std::int64_t kBlock = 8192;
constexpr std::int64_t kLanes = 8;
// Blocks that one thread takes at least; fewer are not worth waking another.
constexpr std::int64_t kGrain = 64;
// Numbers of a device that become double at once: a layer of VGG's would take GBs.
constexpr std::int64_t kPiece = std::int64_t{1} << 24;

template <typename T>
double BlockSum(const T* x, std::int64_t count) {
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t k = 0; k < kLanes; ++k) {
      const double value = static_cast<double>(x[i + k]);
      lanes[k] += value * value;
    }
  }
  for (std::int64_t k = 0; i < count; ++i, ++k) {
    const double value = static_cast<double>(x[i]);
    lanes[k] += value * value;
  }
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

template <typename T>
double Sum(const at::Tensor& tensor) {
  const T* x = tensor.const_data_ptr<T>();
  const std::int64_t count = tensor.numel();
  std::vector<double> parts(static_cast<std::size_t>((count + kBlock - 1) / kBlock));
  at::parallel_for(0, static_cast<std::int64_t>(parts.size()), kGrain,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t b = begin; b < end; ++b) {
                       At(parts, b) =
                           BlockSum(x + b * kBlock, std::min(kBlock, count - b * kBlock));
                     }
                   });
  double sum = 0;
  for (double part : parts) sum += part;
  return sum;
}

// Of each, on their device.
at::Tensor SumsOnDevice(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> sums;
  for (const at::Tensor& tensor : tensors) {
    for (const at::Tensor& piece : tensor.reshape({-1}).split(kPiece)) {
      sums.push_back(piece.to(at::kDouble).square().sum());
    }
  }
  return at::stack(sums);
}

}  // namespace

double SumOfSquares(const std::vector<at::Tensor>& tensors) {
  double sum = 0;
  if (tensors.empty() || tensors.front().is_cpu()) {
    for (const at::Tensor& tensor : tensors) sum += tensor.scalar_type() == at::kDouble ? Sum<double>(tensor) : Sum<float>(tensor);
    return sum;
  }
  const EngineGuard guard;
  const at::Tensor sums = OnHost(SumsOnDevice(tensors));
  for (std::int64_t i = 0; i < sums.numel(); ++i) sum += sums.const_data_ptr<double>()[i];
  return sum;
}

}  // namespace poseidon::caffe
