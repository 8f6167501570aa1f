// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/layers/channel_norm.h"

#include <ATen/ops/mul.h>

namespace poseidon::caffe {

void ChannelNorm::SetShape(at::IntArrayRef sizes, std::int64_t groups) {
  view_ = {groups, sizes[0] / groups, sizes[1], CountOf(sizes, 2, static_cast<std::int64_t>(sizes.size()))};
}

at::Tensor ChannelNorm::Spread(const at::Tensor& channels) const {
  return channels.view({-1, 1, view_[2], 1});
}

ChannelNorm::Statistics ChannelNorm::Measure(const at::Tensor& in) const {
  const at::Tensor rows = in.view(view_);
  const at::Tensor mean = rows.mean(at::IntArrayRef({1, 3}));
  const at::Tensor centred = rows.sub(Spread(mean));
  return {mean, centred.mul(centred).mean(at::IntArrayRef({1, 3}))};
}

at::Tensor ChannelNorm::Normalize(const at::Tensor& in, const Statistics& statistics, double eps) {
  deviation_ = statistics.variance.add(eps).sqrt_();
  normalized_ = in.view(view_).sub(Spread(statistics.mean)).div_(Spread(deviation_)).view(in.sizes());
  return normalized_;
}

// With y = (x - mean(x)) / d: dx = (dy - mean(dy) - y * mean(dy * y)) / d; where the statistics are not of x, dx = dy / d.
at::Tensor ChannelNorm::Backward(const at::Tensor& gradient, bool measured) const {
  at::Tensor result = gradient.view(view_);
  if (measured) {
    const at::Tensor y = normalized_.view(view_);
    const at::Tensor along = result.mul(y).mean(at::IntArrayRef({1, 3}));
    result = result.sub(Spread(result.mean(at::IntArrayRef({1, 3})))).sub_(y.mul(Spread(along)));
  }
  return result.div(Spread(deviation_)).view(gradient.sizes());
}

at::Tensor ChannelNorm::Scale(const at::Tensor& in, const at::Tensor& scale) const {
  return in.view(view_).mul(Spread(scale)).view(in.sizes());
}

at::Tensor ChannelNorm::Scale(const at::Tensor& in, const at::Tensor& scale, const at::Tensor& shift) const {
  return in.view(view_).mul(Spread(scale)).add_(Spread(shift)).view(in.sizes());
}

at::Tensor ChannelNorm::Sum(const at::Tensor& in) const { return in.view(view_).sum(at::IntArrayRef({0, 1, 3})); }

}  // namespace poseidon::caffe
