// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_BLOB_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_BLOB_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
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

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_BLOB_H_
