// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/filler.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numbers>
#include <string>
#include <string_view>
#include <vector>

#include "frontends/caffe/net/placement.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr std::int64_t kGrain = 1 << 12;  // blocks worth a thread's while

using Block = std::array<double, 4>;

// Sets elements 4b .. 4b + 3 of `tensor` to the numbers of block(b).
template <typename MakeBlock>
void SetBlocks(const at::Tensor& tensor, const MakeBlock& make_block) {
  const std::int64_t count = tensor.numel();
  const auto fill = [&](auto* out) {
    using Scalar = std::remove_pointer_t<decltype(out)>;
    at::parallel_for(0, (count + 3) / 4, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        const Block numbers = make_block(b);
        const std::int64_t last = std::min<std::int64_t>(4, count - 4 * b);
        for (std::int64_t i = 0; i < last; ++i) {
          out[4 * b + i] = static_cast<Scalar>(At(numbers, i));
        }
      }
    });
  };
  if (tensor.scalar_type() == at::kDouble) {
    fill(tensor.data_ptr<double>());
  } else {
    fill(tensor.data_ptr<float>());
  }
}

Block UniformBlock(const RandomStream& stream, std::int64_t b, double low, double high) {
  const auto words = stream.Draw(0, static_cast<std::uint64_t>(b));
  Block block;
  for (std::size_t i = 0; i < 4; ++i) block[i] = low + (high - low) * UnitInterval(words[i]);
  return block;
}

// Box and Muller: two words make two numbers.
Block GaussianBlock(const RandomStream& stream, std::int64_t b, double mean, double deviation) {
  const auto words = stream.Draw(0, static_cast<std::uint64_t>(b));
  Block block;
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    const double u = 1.0 - UnitInterval(words[pair]);  // (0, 1]
    const double angle = 2 * std::numbers::pi * UnitInterval(words[pair + 1]);
    const double radius = deviation * std::sqrt(-2 * std::log(u));
    block[pair] = mean + radius * std::cos(angle);
    block[pair + 1] = mean + radius * std::sin(angle);
  }
  return block;
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
  SetBlocks(tensor, [&](std::int64_t b) {
    Block block = GaussianBlock(stream, b, mean, deviation);
    if (sparse) {
      // Sample 1 of the stream decides who stays, sample 0 holds the values.
      const auto words = stream.Draw(1, static_cast<std::uint64_t>(b));
      for (std::size_t i = 0; i < 4; ++i) {
        if (UnitInterval(words[i]) >= keep) block[i] = 0;
      }
    }
    return block;
  });
}

void FillUniform(const RandomStream& stream, double low, double high, const at::Tensor& tensor) {
  SetBlocks(tensor, [&](std::int64_t b) { return UniformBlock(stream, b, low, high); });
}

void FillPositiveUnitBall(const RandomStream& stream, const at::Tensor& tensor) {
  const std::int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  const std::int64_t width = tensor.numel() / rows;
  FillUniform(stream, 0, 1, tensor);
  const at::Tensor matrix = tensor.view({rows, width});
  matrix.div_(matrix.sum(at::IntArrayRef{1}, /*keepdim=*/true, at::kDouble));
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
  SetBlocks(tensor, [&](std::int64_t b) {
    Block block;
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t at = 4 * b + i;
      At(block, i) = weight(at % side) * weight(at / side % side);
    }
    return block;
  });
  return OkStatus();
}

Status CheckRule(const FillerParameter& filler) {
  constexpr std::string_view kRules[] = {"constant", "uniform", "gaussian", "positive_unitball", "xavier", "msra", "bilinear"};
  const std::string& type = filler.type();
  if (std::find(std::begin(kRules), std::end(kRules), type) == std::end(kRules)) {
    return InvalidArgument("unknown filler '" + type + "', expected constant, uniform, gaussian, positive_unitball, xavier, msra or bilinear");
  }
  if (filler.sparse() < -1) return InvalidArgument("filler option sparse must be -1 or more");
  if (filler.sparse() >= 0 && type != "gaussian") {
    return InvalidArgument("filler option sparse belongs to gaussian, not to " + type);
  }
  return OkStatus();
}

void AddRefused(const Message& options, std::vector<Status>* refused) {
  if (const auto* const filler = dynamic_cast<const FillerParameter*>(&options)) {
    const Status status = CheckRule(*filler);
    if (!status.ok() && std::find(refused->begin(), refused->end(), status) == refused->end()) refused->push_back(status);
    return;
  }
  const auto* const reflection = options.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(options, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->message_type() == BlobProto::descriptor()) continue;
    const int count = field->is_repeated() ? reflection->FieldSize(options, field) : 1;
    for (int i = 0; i < count; ++i) {
      AddRefused(field->is_repeated() ? reflection->GetRepeatedMessage(options, field, i) : reflection->GetMessage(options, field), refused);
    }
  }
}

Status FillOnHost(const FillerParameter& filler, const RandomStream& stream, const at::Tensor& tensor) {
  const std::string& type = filler.type();
  if (tensor.numel() == 0) return OkStatus();
  if (type == "constant") {
    tensor.fill_(filler.value());
  } else if (type == "uniform") {
    FillUniform(stream, filler.min(), filler.max(), tensor);
  } else if (type == "gaussian") {
    FillGaussian(filler, stream, filler.mean(), filler.std(), tensor);
  } else if (type == "positive_unitball") {
    FillPositiveUnitBall(stream, tensor);
  } else if (type == "xavier") {
    const double bound = std::sqrt(3 / FanOf(filler, tensor));
    FillUniform(stream, -bound, bound, tensor);
  } else if (type == "msra") {
    FillGaussian(filler, stream, 0, std::sqrt(2 / FanOf(filler, tensor)), tensor);
  } else {
    return FillBilinear(tensor);
  }
  return OkStatus();
}

}  // namespace

std::vector<Status> RefusedFillers(const Message& options) {
  std::vector<Status> refused;
  AddRefused(options, &refused);
  return refused;
}

Status Fill(const FillerParameter& filler, const RandomStream& stream, const at::Tensor& tensor) {
  POSEIDON_RETURN_IF_ERROR(CheckRule(filler));
  Status status;
  WriteOnHost(tensor, [&](const at::Tensor& host) { status = FillOnHost(filler, stream, host); });
  return status;
}

}  // namespace poseidon::caffe
