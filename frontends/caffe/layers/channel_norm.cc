// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/layers/channel_norm.h"

#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>

#include <tuple>
#include <utility>

namespace poseidon::caffe {

void ChannelNorm::SetShape(at::IntArrayRef sizes, double eps, std::int64_t groups) {
  sizes_ = sizes.vec();
  view_ = {groups, sizes[0] / groups, sizes[1], CountOf(sizes, 2, static_cast<std::int64_t>(sizes.size()))};
  eps_ = eps;
}

at::Tensor ChannelNorm::Apart(const at::Tensor& numbers) const {
  return numbers.view(view_).transpose(0, 1).reshape({view_[1], view_[0] * view_[2], view_[3]});
}

at::Tensor ChannelNorm::Together(const at::Tensor& numbers) const {
  return numbers.view({view_[1], view_[0], view_[2], view_[3]}).transpose(0, 1).contiguous().view(sizes_);
}

std::optional<at::Tensor> ChannelNorm::ForEachGroup(const at::Tensor& channels) const {
  if (!channels.defined()) return std::nullopt;
  return channels.view({1, view_[2]}).expand({view_[0], view_[2]}).reshape({view_[0] * view_[2]});
}

const ChannelNorm::Statistics& ChannelNorm::Measure(const at::Tensor& in) {
  in_ = Apart(in);
  measured_ = true;
  const auto [mean, variance] = at::batch_norm_update_stats(in_, {}, {}, /*momentum=*/0);
  statistics_ = {mean.view({view_[0], view_[2]}), variance.view({view_[0], view_[2]})};
  return statistics_;
}

void ChannelNorm::Use(const at::Tensor& in, Statistics given) {
  in_ = Apart(in);
  measured_ = false;
  statistics_ = std::move(given);
}

at::Tensor ChannelNorm::Forward(const at::Tensor& factor, const at::Tensor& term) const {
  return Together(std::get<0>(at::native_batch_norm(in_, ForEachGroup(factor), ForEachGroup(term), statistics_.mean.view(-1),
                                                    statistics_.variance.view(-1), /*training=*/false, /*momentum=*/0, eps_)));
}

// The kernels take measured statistics as mean and 1 / sqrt(variance + eps), and given ones as they are. CUDA's asks for the former of given
// ones too, where it does not make all three gradients in one go.
ChannelNorm::Gradients ChannelNorm::Backward(const at::Tensor& gradient, const at::Tensor& factor, std::array<bool, 3> wanted) const {
  const at::Tensor mean = statistics_.mean.view(-1);
  const at::Tensor variance = statistics_.variance.view(-1);
  const auto if_given = [&](const at::Tensor& t) { return measured_ ? std::nullopt : std::optional(t); };
  const auto [in, by_factor, by_term] = at::native_batch_norm_backward(
      Apart(gradient), in_, ForEachGroup(factor), if_given(mean), if_given(variance), mean, variance.add(eps_).rsqrt_(),
      measured_, eps_, wanted);
  const auto of_all_groups = [&](const at::Tensor& t) { return t.defined() ? t.view({view_[0], view_[2]}).sum(0) : t; };
  return {wanted[0] ? Together(in) : at::Tensor(), of_all_groups(by_factor), of_all_groups(by_term)};
}

}  // namespace poseidon::caffe
