// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/blob_proto.h"

#include <algorithm>

#include "frontends/caffe/net/placement.h"
#include "poseidon/base/check.h"

namespace poseidon::caffe {
namespace {

bool HasLegacyShape(const BlobProto& proto) {
  return proto.has_num() || proto.has_channels() || proto.has_height() || proto.has_width();
}

}  // namespace

Shape ShapeOf(const BlobProto& proto) {
  if (HasLegacyShape(proto)) {
    return {proto.num(), proto.channels(), proto.height(), proto.width()};
  }
  return {proto.shape().dim().begin(), proto.shape().dim().end()};
}

bool Fits(const BlobProto& proto, const Shape& shape) {
  const Shape given = ShapeOf(proto);
  if (!HasLegacyShape(proto)) return given == shape;
  if (shape.size() > given.size()) return false;
  Shape padded(given.size() - shape.size(), 1);
  padded.insert(padded.end(), shape.begin(), shape.end());
  return padded == given;
}

std::int64_t NumbersIn(const BlobProto& proto) {
  return proto.double_data_size() > 0 ? proto.double_data_size() : proto.data_size();
}

void ToBlobProto(const at::Tensor& tensor, BlobProto* proto) {
  const at::Tensor from = OnHost(tensor);
  for (const std::int64_t extent : from.sizes()) proto->mutable_shape()->add_dim(extent);
  const auto count = static_cast<int>(from.numel());
  if (from.scalar_type() == at::kDouble) {
    const auto* numbers = from.const_data_ptr<double>();
    proto->mutable_double_data()->Add(numbers, numbers + count);
  } else {
    const auto* numbers = from.const_data_ptr<float>();
    proto->mutable_data()->Add(numbers, numbers + count);
  }
}

void AddDiff(const at::Tensor& tensor, BlobProto* proto) {
  const at::Tensor diff = OnHost(tensor);
  const auto count = static_cast<int>(diff.numel());
  if (diff.scalar_type() == at::kDouble) {
    const auto* numbers = diff.const_data_ptr<double>();
    proto->mutable_double_diff()->Add(numbers, numbers + count);
  } else {
    const auto* numbers = diff.const_data_ptr<float>();
    proto->mutable_diff()->Add(numbers, numbers + count);
  }
}

void CopyNumbers(const BlobProto& proto, const at::Tensor& to) {
  POSEIDON_CHECK(NumbersIn(proto) == to.numel(), "saved numbers go where as many are expected");
  WriteOnHost(to, [&](const at::Tensor& host) {
    const auto copy = [&](const auto& from) {
      if (host.scalar_type() == at::kDouble) {
        std::copy(from.begin(), from.end(), host.mutable_data_ptr<double>());
      } else {
        const auto narrowed = [](auto number) { return static_cast<float>(number); };
        std::transform(from.begin(), from.end(), host.mutable_data_ptr<float>(), narrowed);
      }
    };
    if (proto.double_data_size() > 0) {
      copy(proto.double_data());
    } else {
      copy(proto.data());
    }
  });
}

}  // namespace poseidon::caffe
