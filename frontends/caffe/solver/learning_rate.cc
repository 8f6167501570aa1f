// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/learning_rate.h"

#include <array>
#include <cmath>
#include <string>

#include "poseidon/base/check.h"
#include "poseidon/base/listed.h"

namespace poseidon::caffe {
namespace {

using Policy = LearningRate (*)(const SolverParameter& solver, std::uint64_t iteration,
                                int current_step);

LearningRate Fixed(const SolverParameter& s, std::uint64_t, int current) {
  return {s.base_lr(), current};
}
LearningRate Step(const SolverParameter& s, std::uint64_t iteration, int) {
  const int step = static_cast<int>(iteration / static_cast<std::uint64_t>(s.stepsize()));
  return {s.base_lr() * std::pow(double{s.gamma()}, step), step};
}
LearningRate Exp(const SolverParameter& s, std::uint64_t iteration, int current) {
  return {s.base_lr() * std::pow(double{s.gamma()}, static_cast<double>(iteration)), current};
}
LearningRate Inv(const SolverParameter& s, std::uint64_t iteration, int current) {
  const double base = 1 + s.gamma() * static_cast<double>(iteration);
  return {s.base_lr() * std::pow(base, -double{s.power()}), current};
}
LearningRate MultiStep(const SolverParameter& s, std::uint64_t iteration, int current) {
  const bool more = current < s.stepvalue_size();
  if (more && static_cast<std::int64_t>(iteration) >= s.stepvalue(current)) ++current;
  return {s.base_lr() * std::pow(double{s.gamma()}, current), current};
}
LearningRate Poly(const SolverParameter& s, std::uint64_t iteration, int current) {
  const double left = 1 - static_cast<double>(iteration) / s.max_iter();
  return {s.base_lr() * std::pow(left, double{s.power()}), current};
}
LearningRate Sigmoid(const SolverParameter& s, std::uint64_t iteration, int current) {
  const double past = static_cast<double>(iteration) - s.stepsize();
  return {s.base_lr() / (1 + std::exp(-s.gamma() * past)), current};
}

struct NamedPolicy {
  const char* name;
  Policy policy;
  bool needs_stepsize;
  bool needs_max_iter;
};
constexpr std::array<NamedPolicy, 7> kPolicies = {{{"fixed", Fixed, false, false},
                                                   {"step", Step, true, false},
                                                   {"exp", Exp, false, false},
                                                   {"inv", Inv, false, false},
                                                   {"multistep", MultiStep, false, false},
                                                   {"poly", Poly, false, true},
                                                   {"sigmoid", Sigmoid, true, false}}};

const NamedPolicy* Find(const std::string& name) {
  for (const NamedPolicy& entry : kPolicies) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

}  // namespace

Status CheckLearningRate(const SolverParameter& solver) {
  const NamedPolicy* entry = Find(solver.lr_policy());
  if (entry == nullptr) {
    std::string known;
    for (const NamedPolicy& policy : kPolicies) AddListed(policy.name, &known);
    return InvalidArgument("unknown lr_policy '" + solver.lr_policy() + "', expected one of " +
                           known);
  }
  const std::string where = "lr_policy " + solver.lr_policy() + " needs ";
  if (entry->needs_stepsize && solver.stepsize() <= 0) {
    return InvalidArgument(where + "a stepsize above 0, got " + std::to_string(solver.stepsize()));
  }
  if (entry->needs_max_iter && solver.max_iter() <= 0) {
    return InvalidArgument(where + "a max_iter above 0, got " + std::to_string(solver.max_iter()));
  }
  if (solver.gamma() < 0) {
    return InvalidArgument(where + "a gamma of at least 0, got " + std::to_string(solver.gamma()));
  }
  return OkStatus();
}

LearningRate LearningRateAt(const SolverParameter& solver, std::uint64_t iteration,
                            int current_step) {
  const NamedPolicy* entry = Find(solver.lr_policy());
  POSEIDON_CHECK(entry != nullptr, "the learning rate policy was not checked");
  return entry->policy(solver, iteration, current_step);
}

}  // namespace poseidon::caffe
