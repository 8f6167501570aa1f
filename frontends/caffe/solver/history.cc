// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/history.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "frontends/caffe/net/engine.h"

namespace poseidon::caffe {
namespace {

std::int64_t NumbersIn(const BlobProto& blob) {
  return std::max(blob.data_size(), blob.double_data_size());
}

template <typename T>
void CopyInto(const BlobProto& blob, T* out) {
  if (blob.double_data_size() > 0) {
    for (double value : blob.double_data()) *out++ = static_cast<T>(value);
  } else {
    for (float value : blob.data()) *out++ = static_cast<T>(value);
  }
}

}  // namespace

History::History(const Net& net, int slots)
    : params_(net.learnable_params().size()), slots_(slots) {
  const EngineGuard guard;
  for (int slot = 0; slot < slots; ++slot) {
    for (const LearnableParam& param : net.learnable_params()) {
      tensors_.push_back(at::zeros_like(param.blob.data));
    }
  }
}

void History::Save(SolverState* state) const {
  for (const at::Tensor& tensor : tensors_) {
    BlobProto* blob = state->add_history();
    for (const std::int64_t extent : tensor.sizes()) blob->mutable_shape()->add_dim(extent);
    const auto count = static_cast<int>(tensor.numel());
    if (tensor.scalar_type() == at::kDouble) {
      const double* numbers = tensor.const_data_ptr<double>();
      blob->mutable_double_data()->Add(numbers, numbers + count);
    } else {
      const float* numbers = tensor.const_data_ptr<float>();
      blob->mutable_data()->Add(numbers, numbers + count);
    }
  }
}

Status History::Load(const SolverState& state, const std::string& source) {
  const auto entries = static_cast<std::size_t>(state.history_size());
  if (entries != tensors_.size()) {
    return InvalidArgument(source + " holds " + std::to_string(entries) +
                           " history blobs, expected " + std::to_string(tensors_.size()) + " (" +
                           std::to_string(slots_) + " for each of " + std::to_string(params_) +
                           " learned blobs)");
  }
  for (std::size_t i = 0; i < entries; ++i) {
    const std::int64_t given = NumbersIn(state.history(static_cast<int>(i)));
    if (given != tensors_[i].numel()) {
      return InvalidArgument(source + ": history blob " + std::to_string(i) + " holds " +
                             std::to_string(given) + " numbers, expected " +
                             std::to_string(tensors_[i].numel()) + " (shape " +
                             ShapeText(tensors_[i].sizes()) + ")");
    }
  }
  for (std::size_t i = 0; i < entries; ++i) {
    const BlobProto& blob = state.history(static_cast<int>(i));
    if (tensors_[i].scalar_type() == at::kDouble) {
      CopyInto(blob, tensors_[i].mutable_data_ptr<double>());
    } else {
      CopyInto(blob, tensors_[i].mutable_data_ptr<float>());
    }
  }
  return OkStatus();
}

}  // namespace poseidon::caffe
