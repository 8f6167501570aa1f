// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_CHANNEL_NORM_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_CHANNEL_NORM_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {

// What all batch normalizations have in common, by the library's kernels, whose sums are in double: numbers are normalized per channel,
// over all rows of a group and all places, and multiplied and shifted in the same pass. Groups divide the rows evenly; mostly there is
// one. Thread: that of the net.
class ChannelNorm {
 public:
  struct Statistics {
    at::Tensor mean;      // [groups, channels], or of as many numbers
    at::Tensor variance;  // biased
  };
  struct Gradients {  // undefined where not wanted
    at::Tensor in;
    at::Tensor factor;  // [channels]
    at::Tensor term;
  };

  // For numbers of shape `sizes` (rows, channels, places...) from now on. `groups` divides the rows.
  void SetShape(at::IntArrayRef sizes, double eps, std::int64_t groups = 1);
  std::int64_t groups() const { return view_[0]; }
  // How many numbers a mean of Measure is over.
  std::int64_t count() const { return view_[1] * view_[3]; }

  // The statistics of `in`. Forward and Backward are of `in` and of them until the next call.
  const Statistics& Measure(const at::Tensor& in);
  // The same with statistics that do not depend on `in`.
  void Use(const at::Tensor& in, Statistics given);
  // (in - mean) / sqrt(variance + eps) * factor + term, a number of each for every channel, 1 and 0 where undefined. In memory of its own:
  // Backward reads `in`.
  at::Tensor Forward(const at::Tensor& factor, const at::Tensor& term) const;
  // The gradients of `in`, `factor` and `term` that are wanted, from that of what Forward returns with `factor`.
  Gradients Backward(const at::Tensor& gradient, const at::Tensor& factor, std::array<bool, 3> wanted) const;

 private:
  // To the kernels the channels of each group are channels of their own. With one group both are views.
  at::Tensor Apart(const at::Tensor& numbers) const;
  at::Tensor Together(const at::Tensor& numbers) const;
  std::optional<at::Tensor> ForEachGroup(const at::Tensor& channels) const;

  Shape sizes_;
  Shape view_ = {1, 1, 1, 1};  // groups, rows of a group, channels, places
  double eps_ = 0;
  bool measured_ = false;
  at::Tensor in_;
  Statistics statistics_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_CHANNEL_NORM_H_
