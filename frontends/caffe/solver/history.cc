// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/history.h"

#include <ATen/ops/zeros_like.h>

#include <utility>

#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/net/blob_proto.h"

namespace poseidon::caffe {
namespace {

// Both keep what the last update took off.
bool KeepsMomentum(const std::string& type) { return type == "SGD" || type == "Nesterov"; }

bool MeansTheSame(const std::string& one, const std::string& other) {
  return one == other || (KeepsMomentum(one) && KeepsMomentum(other));
}

}  // namespace

History::History(const Net& net, int slots, std::string type)
    : params_(net.learnable_params().size()), slots_(slots), type_(std::move(type)) {
  const EngineGuard guard;
  for (int slot = 0; slot < slots; ++slot) {
    for (const LearnableParam& param : net.learnable_params()) {
      tensors_.push_back(at::zeros_like(param.blob.data));
    }
  }
}

void History::Save(SolverState* state) const {
  state->set_solver_type(type_);
  for (const at::Tensor& tensor : tensors_) ToBlobProto(tensor, state->add_history());
}

Status History::Fits(const SolverState& state, const std::string& source) const {
  if (state.has_solver_type() && !MeansTheSame(state.solver_type(), type_)) {
    return InvalidArgument(source + " holds the history of solver type " + state.solver_type() + ", expected " + type_ +
                           "'s; resume with that type, or begin with the weights alone (--weights)");
  }
  const auto entries = static_cast<std::size_t>(state.history_size());
  if (entries != tensors_.size()) {
    return InvalidArgument(source + " holds " + std::to_string(entries) +
                           " history blobs, expected " + std::to_string(tensors_.size()) + " (" +
                           std::to_string(slots_) + " for each of " + std::to_string(params_) +
                           " learned blobs)");
  }
  for (std::size_t i = 0; i < entries; ++i) {
    const std::int64_t given = NumbersIn(state.history(static_cast<int>(i)));
    if (given != tensors_[i].numel()) {
      return InvalidArgument(source + ": history blob " + std::to_string(i) + " holds " +
                             std::to_string(given) + " numbers, expected " +
                             std::to_string(tensors_[i].numel()) + " (shape " +
                             ShapeText(tensors_[i].sizes()) + ")");
    }
  }
  return OkStatus();
}

std::string History::AnothersWords(const SolverState& state, const std::string& source) const {
  if (!state.has_solver_type() || state.solver_type() == type_) return "";
  return source + " was written by solver type " + state.solver_type() + "; " + type_ + " goes on with its momentum";
}

void History::Load(const SolverState& state) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    CopyNumbers(state.history(static_cast<int>(i)), tensors_[i]);
  }
}

}  // namespace poseidon::caffe
