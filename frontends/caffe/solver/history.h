// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_HISTORY_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_HISTORY_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "frontends/caffe/net/net.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// A solver's state per weight: for each learned blob, in the net's order, `slots` tensors of
// its shape and dtype, zero at first. Shared blobs have one entry, that of their owner.
class History {
 public:
  // `type` is the solver's, whose rule makes the history.
  History(const Net& net, int slots, std::string type);
  int slots() const { return slots_; }
  at::Tensor& at(std::size_t param, int slot) {
    return tensors_[static_cast<std::size_t>(slot) * params_ + param];
  }
  // In the order of a solver state: slot 0 of every blob, then slot 1 of every blob.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  // Appends all to state->history, and says whose it is.
  void Save(SolverState* state) const;
  // OK where state.history has the right number of blobs of the right sizes and means what this one's would; else an error
  // that names `source`. A state that Caffe wrote does not say what its history means.
  Status Fits(const SolverState& state, const std::string& source) const;
  // For the user: that a history that fits was made by another type of solver; empty: it was not.
  std::string AnothersWords(const SolverState& state, const std::string& source) const;
  // Takes all from state.history. Pre: it fits.
  void Load(const SolverState& state);

 private:
  const std::size_t params_;
  const int slots_;
  const std::string type_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_HISTORY_H_
