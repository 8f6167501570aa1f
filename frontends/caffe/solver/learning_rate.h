// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_LEARNING_RATE_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_LEARNING_RATE_H_

#include <cstdint>

#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// The rate of an iteration, and the number of steps that step and multistep have taken; a solver
// state keeps the latter.
struct LearningRate {
  double rate = 0;
  int current_step = 0;
};

// OK when `solver` names a known lr_policy and gives what it needs; else one sentence.
Status CheckLearningRate(const SolverParameter& solver);

// Caffe's seven policies: fixed, step, exp, inv, multistep, poly, sigmoid. `current_step` is that
// of the iteration before (0 at the start): multistep advances by at most one per iteration, so it
// is the one policy that needs it. `solver` must have passed CheckLearningRate.
LearningRate LearningRateAt(const SolverParameter& solver, std::uint64_t iteration,
                            int current_step);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_LEARNING_RATE_H_
