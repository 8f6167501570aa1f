// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_BLOB_PROTO_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_BLOB_PROTO_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/proto/caffe.pb.h"

namespace poseidon::caffe {

// Tensors as Caffe's files have them. Tensors here are contiguous, f32 or f64, on the CPU.

// The saved shape: `shape`, or the num, channels, height and width of old files.
Shape ShapeOf(const BlobProto& proto);

// Whether the saved shape is `shape`; the four dimensions of old may have ones in front of it.
bool Fits(const BlobProto& proto, const Shape& shape);

// How many numbers are saved, in double_data or, without any there, in data.
std::int64_t NumbersIn(const BlobProto& proto);

// Shape and numbers of `from`: f64 in double_data, f32 in data.
void ToBlobProto(const at::Tensor& from, BlobProto* proto);

// The numbers of `diff`, beside those of its blob: f64 in double_diff, f32 in diff.
void AddDiff(const at::Tensor& diff, BlobProto* proto);

// Converts the saved numbers, of either width, into `to`, whatever their shape. They are NumbersIn()
// many, and must be to.numel(): the caller knows what to say where they are not.
void CopyNumbers(const BlobProto& proto, const at::Tensor& to);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_BLOB_PROTO_H_
