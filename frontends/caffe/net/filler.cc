// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/filler.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

namespace poseidon::caffe {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements worth a thread's while

// Sets element i of `tensor` to at(i).
template <typename F>
void SetEach(const at::Tensor& tensor, const F& at) {
  const auto fill = [&](auto* out) {
    using Scalar = std::remove_pointer_t<decltype(out)>;
    at::parallel_for(0, tensor.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<Scalar>(at(i));
    });
  };
  if (tensor.scalar_type() == at::kDouble) {
    fill(tensor.data_ptr<double>());
  } else {
    fill(tensor.data_ptr<float>());
  }
}

// Block b of the stream holds elements 4b .. 4b + 3.
double UniformAt(const RandomStream& stream, std::int64_t i, double low, double high) {
  const auto words = stream.Draw(0, static_cast<std::uint64_t>(i) / 4);
  return low + (high - low) * UnitInterval(words[static_cast<std::size_t>(i % 4)]);
}

// Box and Muller: words 0, 1 of a block give elements 4b, 4b + 1; words 2, 3 the other two.
double GaussianAt(const RandomStream& stream, std::int64_t i, double mean, double deviation) {
  const auto words = stream.Draw(0, static_cast<std::uint64_t>(i) / 4);
  const std::size_t pair = static_cast<std::size_t>(i % 4) & 2U;
  const double u = 1.0 - UnitInterval(words[pair]);  // (0, 1]
  const double angle = 2 * std::numbers::pi * UnitInterval(words[pair + 1]);
  const double radius = std::sqrt(-2 * std::log(u));
  return mean + deviation * radius * ((i & 1) == 0 ? std::cos(angle) : std::sin(angle));
}

// The n of xavier and msra.
double FanOf(const FillerParameter& filler, const at::Tensor& tensor) {
  const double count = static_cast<double>(tensor.numel());
  const double in = tensor.dim() > 0 ? count / static_cast<double>(tensor.size(0)) : count;
  const double out = tensor.dim() > 1 ? count / static_cast<double>(tensor.size(1)) : count;
  switch (filler.variance_norm()) {
    case FillerParameter::FAN_IN: return in;
    case FillerParameter::FAN_OUT: return out;
    case FillerParameter::AVERAGE: return (in + out) / 2;
  }
  return in;
}

void FillGaussian(const FillerParameter& filler, const RandomStream& stream, double mean,
                  double deviation, const at::Tensor& tensor) {
  const bool sparse = filler.sparse() >= 0 && tensor.dim() > 0;
  const double keep = sparse ? static_cast<double>(filler.sparse()) /
                                   static_cast<double>(tensor.size(0))
                             : 1.0;
  SetEach(tensor, [&](std::int64_t i) {
    if (sparse) {
      // Sample 1 of the stream decides who stays, sample 0 holds the values.
      const auto words = stream.Draw(1, static_cast<std::uint64_t>(i) / 4);
      if (UnitInterval(words[static_cast<std::size_t>(i % 4)]) >= keep) return 0.0;
    }
    return GaussianAt(stream, i, mean, deviation);
  });
}

void FillPositiveUnitBall(const RandomStream& stream, const at::Tensor& tensor) {
  const std::int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  const std::int64_t width = tensor.numel() / rows;
  SetEach(tensor, [&](std::int64_t i) { return UniformAt(stream, i, 0, 1); });
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += UniformAt(stream, row * width + i, 0, 1);
    tensor.view({rows, width}).select(0, row).div_(sum);
  }
}

// Interpolation weights for up-sampling by a Deconvolution layer.
Status FillBilinear(const at::Tensor& tensor) {
  if (tensor.dim() != 4 || tensor.size(2) != tensor.size(3)) {
    return InvalidArgument("the bilinear filler needs four axes and a square kernel");
  }
  const std::int64_t side = tensor.size(3);
  const double factor = std::ceil(static_cast<double>(side) / 2);
  const double centre = static_cast<double>(side - 1) / (2 * factor);
  const auto weight = [&](std::int64_t at) {
    return 1 - std::fabs(static_cast<double>(at) / factor - centre);
  };
  SetEach(tensor, [&](std::int64_t i) { return weight(i % side) * weight(i / side % side); });
  return OkStatus();
}

}  // namespace

Status Fill(const FillerParameter& filler, const RandomStream& stream, const at::Tensor& tensor) {
  const std::string& type = filler.type();
  if (filler.sparse() < -1) return InvalidArgument("filler option sparse must be -1 or more");
  if (filler.sparse() >= 0 && type != "gaussian") {
    return InvalidArgument("filler option sparse belongs to gaussian, not to " + type);
  }
  if (tensor.numel() == 0) return OkStatus();
  if (type == "constant") {
    tensor.fill_(filler.value());
  } else if (type == "uniform") {
    SetEach(tensor,
            [&](std::int64_t i) { return UniformAt(stream, i, filler.min(), filler.max()); });
  } else if (type == "gaussian") {
    FillGaussian(filler, stream, filler.mean(), filler.std(), tensor);
  } else if (type == "positive_unitball") {
    FillPositiveUnitBall(stream, tensor);
  } else if (type == "xavier") {
    const double bound = std::sqrt(3 / FanOf(filler, tensor));
    SetEach(tensor, [&](std::int64_t i) { return UniformAt(stream, i, -bound, bound); });
  } else if (type == "msra") {
    FillGaussian(filler, stream, 0, std::sqrt(2 / FanOf(filler, tensor)), tensor);
  } else if (type == "bilinear") {
    return FillBilinear(tensor);
  } else {
    return InvalidArgument("unknown filler '" + type +
                           "', expected constant, uniform, gaussian, positive_unitball, xavier, "
                           "msra or bilinear");
  }
  return OkStatus();
}

}  // namespace poseidon::caffe
