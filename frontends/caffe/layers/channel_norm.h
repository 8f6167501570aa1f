// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_CHANNEL_NORM_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_CHANNEL_NORM_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {

// What the batch normalizations of forks have in common: numbers are normalized per channel, over all rows of a group and
// all places. Groups divide the rows evenly; mostly there is one.
class ChannelNorm {
 public:
  struct Statistics {
    at::Tensor mean;      // [groups, channels], or [1, channels] where one serves all groups
    at::Tensor variance;  // biased
  };

  // For numbers of shape `sizes` (rows, channels, places) from now on. `groups` divides the rows.
  void SetShape(at::IntArrayRef sizes, std::int64_t groups = 1);
  std::int64_t groups() const { return view_[0]; }
  std::int64_t channels() const { return view_[2]; }
  // How many numbers a mean of Measure is over.
  std::int64_t count() const { return view_[1] * view_[3]; }

  Statistics Measure(const at::Tensor& in) const;
  // Returns (in - mean) / sqrt(variance + eps), of the shape of `in`, and keeps it for Backward.
  at::Tensor Normalize(const at::Tensor& in, const Statistics& statistics, double eps);
  // What Normalize returned last.
  const at::Tensor& normalized() const { return normalized_; }
  // The gradient of the input, from that of what Normalize returned. `measured`: its statistics were those of the input.
  at::Tensor Backward(const at::Tensor& gradient, bool measured) const;

  // in * scale + shift, a number of each for every channel, of the shape of `in`.
  at::Tensor Scale(const at::Tensor& in, const at::Tensor& scale, const at::Tensor& shift) const;
  at::Tensor Scale(const at::Tensor& in, const at::Tensor& scale) const;
  // The sum over all rows and places, [channels].
  at::Tensor Sum(const at::Tensor& in) const;

 private:
  at::Tensor Spread(const at::Tensor& channels) const;  // to be broadcast over view_

  Shape view_ = {1, 1, 1, 1};  // groups, rows of a group, channels, places
  at::Tensor deviation_;
  at::Tensor normalized_;
};

// Whether these are options that only forks have: scale_bias of NVCaffe, stats_batch_size of Intel's.
bool AsksForForkedBatchNorm(const BatchNormParameter& options);
std::unique_ptr<Layer> MakeForkedBatchNormLayer(const LayerParameter& param, const LayerContext& context);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_CHANNEL_NORM_H_
