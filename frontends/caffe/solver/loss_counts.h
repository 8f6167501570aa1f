// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_LOSS_COUNTS_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_LOSS_COUNTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "frontends/caffe/net/net.h"

namespace poseidon::caffe {

// Over how many samples a net's losses are means, where labels leave some out (ignore_label with normalization VALID). One
// machine divides the sum of all its samples by their number. Workers that divide by numbers of their own make the same mean
// where each one's gradient counts with its number; this says which that is.
//
// One number per worker does that where there is one: all that is learned comes from masked losses over the same labels, in one
// pass an iteration. Else workers count alike, and their mean is another one where their numbers differ.
//
// Thread: one. Lifetime: the net outlives it.
class LossCounts {
 public:
  LossCounts(const Net& net, int iter_size);
  // Whether workers count with their numbers: the same on all of them.
  bool weighs() const { return weighs_; }
  // This worker's weight in the mean, after a forward pass; 0 where they count alike, and where no sample counts.
  std::uint32_t weight() const;
  // After a forward pass: a sentence for the user once numbers are seen to differ though workers count alike; else empty.
  std::string Take();

 private:
  const Net& net_;
  std::vector<int> masked_;  // layers
  bool weighs_ = false;
  std::vector<std::int64_t> first_;  // numbers of the first pass, by masked layer
  bool told_ = false;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_LOSS_COUNTS_H_
