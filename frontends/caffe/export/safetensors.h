// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_EXPORT_SAFETENSORS_H_
#define POSEIDON_FRONTENDS_CAFFE_EXPORT_SAFETENSORS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "poseidon/base/result.h"
#include "poseidon/base/status.h"

// Files of named tensors (https://github.com/huggingface/safetensors, "Format"): 8 bytes that say how long the header is,
// little-endian; the header, a JSON object of dtype, shape and data_offsets by name; the numbers, little-endian, without gaps.
namespace poseidon::caffe {

struct TensorView {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> numbers;
};

struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> numbers;
};

// Writes F32 tensors of different names, in this order, and `net` as metadata.
Status WriteSafetensors(const std::vector<TensorView>& tensors, const std::string& net, const std::string& path);

// The tensors of dtype F32, F64, F16 and BF16, in the order of their numbers; any other is refused. Everything that the
// header says is checked before memory is taken for it.
Result<std::vector<NamedTensor>> ReadSafetensors(const std::string& path);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_EXPORT_SAFETENSORS_H_
