// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/loss_counts.h"

#include <algorithm>
#include <limits>

namespace poseidon::caffe {
namespace {

bool MasksAlike(const Net& net, int one, int other) {
  return net.source_name(one, 1) == net.source_name(other, 1) &&
         net.layer(one).param().loss_param().ignore_label() == net.layer(other).param().loss_param().ignore_label();
}

}  // namespace

LossCounts::LossCounts(const Net& net, int iter_size) : net_(net) {
  weighs_ = iter_size == 1;
  for (int i = 0; i < net.layer_count(); ++i) {
    if (!net.needs_backward(i) || !net.loss_is_weighted(i)) continue;
    const bool masked = net.layer(i).is_masked_mean();
    if (masked) masked_.push_back(i);
    weighs_ = weighs_ && masked && MasksAlike(net, masked_.front(), i);
  }
  weighs_ = weighs_ && !masked_.empty();
}

std::uint32_t LossCounts::weight() const {
  if (!weighs_) return 0;
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::min(net_.layer(masked_.front()).counted(), kMost));
}

std::string LossCounts::Take() {
  if (weighs_ || told_ || masked_.empty()) return "";
  if (first_.empty()) {
    for (const int layer : masked_) first_.push_back(net_.layer(layer).counted());
    return "";
  }
  for (std::size_t i = 0; i < masked_.size(); ++i) {
    const std::int64_t now = net_.layer(masked_[i]).counted();
    if (now == first_[i]) continue;
    told_ = true;
    return "the loss of layer '" + net_.UniqueName(masked_[i]) + "' is a mean over " + std::to_string(first_[i]) +
           " labels of one batch and " + std::to_string(now) + " of another: with iter_size or losses beside it, workers count "
           "alike in the mean of their gradients, which is then not quite that of one machine with all their batches";
  }
  return "";
}

}  // namespace poseidon::caffe
