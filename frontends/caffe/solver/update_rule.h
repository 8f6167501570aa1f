// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_UPDATE_RULE_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_UPDATE_RULE_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

inline constexpr int kMaxHistorySlots = 2;

// One blob in one iteration. The tensors are contiguous, in one place, of one length and dtype
// (float or double).
struct BlobUpdate {
  at::Tensor weights;
  at::Tensor gradient;  // read; the sum over iter_size passes, mean over workers
  std::array<at::Tensor, kMaxHistorySlots> history;  // the rule's first slots() are used
  std::uint64_t iteration = 0;
  double rate = 0;     // learning rate * lr_mult
  double decay = 0;    // weight_decay * decay_mult
  double clip = 1;     // what clip_gradients multiplies the gradient by
  double average = 1;  // 1 / iter_size
};

// How a gradient changes a weight: one of Caffe's solvers. In one pass over memory
//   g = gradient * clip * average + decay * (w or sign(w)),
//   w -= step of the rule for g and its history, which it updates.
// Every element is computed alone, so the result does not depend on the number of threads.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // Numbers kept per weight: 1, or 2 for AdaDelta and Adam.
  virtual int slots() const = 0;
  virtual void Apply(const BlobUpdate& update) const = 0;
};

// By `solver.type()`; an unknown one lists those there are. Also checks regularization_type and the
// numbers the rule uses.
Result<std::unique_ptr<UpdateRule>> MakeUpdateRule(const SolverParameter& solver);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_UPDATE_RULE_H_
