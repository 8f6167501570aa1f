// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_BLOB_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_BLOB_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace poseidon::caffe {

// A tensor and its gradient, Caffe's noun. Both are contiguous, of the net's dtype (f32, or f64 in
// numeric tests) and on the net's device; `diff` is undefined until a backward pass needs it.
// Copying a Blob copies handles, not numbers.
struct Blob {
  at::Tensor data;
  at::Tensor diff;

  std::vector<std::int64_t> shape() const { return data.sizes().vec(); }
  std::int64_t count() const { return data.defined() ? data.numel() : 0; }
};

// The numbers of a contiguous f32 tensor, which outlives what is returned.
inline std::span<const float> NumbersOf(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_BLOB_H_
