// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_CHANNEL_SCALE_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_CHANNEL_SCALE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace poseidon::caffe {

// A normalization and the scale on top of it may run as one, in the scale's turns: its weights have arrived only when its forward turn
// comes, and its gradients leave first in the backward pass. In its own turns the normalization takes the statistics, and hands down the
// gradient of its bottom. Thread: that of the net.

class FusedNormalization {
 public:
  struct Gradients {
    at::Tensor factor;  // [channels], undefined where not wanted
    at::Tensor term;
  };
  virtual ~FusedNormalization() = default;
  // What the scale gives, of as many elements as the bottom.
  virtual at::Tensor ForwardAll() = 0;
  // `gradient`: of the scale's top. Also keeps the gradient of the normalization's bottom, where it is wanted, for its own turn.
  virtual Gradients BackwardAll(const at::Tensor& gradient, bool wants_bottom, bool wants_factor, bool wants_term) = 0;
};

class ChannelScale {
 public:
  virtual ~ChannelScale() = default;
  // True where it is a learned factor, and perhaps a term, for each of `channels` on axis 1: from then on `below` computes it.
  virtual bool LeaveTo(FusedNormalization* below, std::int64_t channels) = 0;
  virtual const at::Tensor& factor_data() = 0;
  virtual at::Tensor term_data() = 0;  // undefined without a term
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_CHANNEL_SCALE_H_
