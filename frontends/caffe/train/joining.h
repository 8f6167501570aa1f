// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_JOINING_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_JOINING_H_

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "poseidon/base/result.h"
#include "poseidon/plan/layer.h"

namespace poseidon::caffe {

// Decides, beside their sizes, which layers of a net share a message. Layers have their unique names here.
struct JoiningRule {
  std::set<std::string, std::less<>> apart = {};        // stay alone
  std::vector<std::vector<std::string>> together = {};  // share one each, whatever their sizes, but those in `apart`
  std::string said_by = {};                             // who says `together`, for sentences
};

// The layers that share a message, by their places in `layers`, which are in net order: every layer is in one group,
// groups come in the order of their first layers. What the rule does not name joins as plan::JoinSmall decides.
// kInvalidArgument where the rule joins what is not in `layers`, or has another order.
Result<std::vector<std::vector<std::size_t>>> GroupsOf(std::span<const plan::LayerSpec> layers,
                                                       const JoiningRule& rule);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_JOINING_H_
