// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_SWEEP_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_SWEEP_H_

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "frontends/caffe/solver/update_rule.h"
#include "poseidon/base/check.h"

namespace poseidon::caffe {

// Shared by all rules: the loop over memory. A rule is a value with
//   static constexpr int kSlots;
//   template <typename T> auto Prepare(const BlobUpdate&) const;   a functor (T g, T& h0 [, T& h1])
//   -> T
//   at::Tensor Step(const BlobUpdate&, const at::Tensor& g) const;
// where the functor gets the finished gradient and the weight's history numbers, changes the
// latter, and returns what is taken off the weight. Step is the same of all weights of a blob on a device, by the engine's
// operators, which round in other places.

enum class Regularization { kNone, kL1, kL2 };

// Weights of a blob that one thread takes at least. A million of them are a fifth of a millisecond
// of work; waking a second thread for less costs milliseconds where the cores are busy.
inline constexpr std::int64_t kSweepGrain = std::int64_t{1} << 20;

template <typename T, int kSlots, Regularization kKind, typename Step>
void SweepRange(const BlobUpdate& update, Step step, std::int64_t begin, std::int64_t end) {
  T* __restrict w = update.weights.mutable_data_ptr<T>();
  const T* __restrict gradient = update.gradient.const_data_ptr<T>();
  T* __restrict h0 = update.history[0].mutable_data_ptr<T>();
  T* __restrict h1 = kSlots > 1 ? update.history[1].mutable_data_ptr<T>() : nullptr;
  const T clip = static_cast<T>(update.clip);
  const T average = static_cast<T>(update.average);
  const T decay = static_cast<T>(update.decay);
  for (std::int64_t i = begin; i < end; ++i) {
    const T weight = w[i];
    T g = gradient[i] * clip * average;
    if constexpr (kKind == Regularization::kL2) g += decay * weight;
    if constexpr (kKind == Regularization::kL1) {
      g += decay * static_cast<T>((weight > 0) - (weight < 0));
    }
    if constexpr (kSlots > 1) {
      w[i] = weight - step(g, h0[i], h1[i]);
    } else {
      w[i] = weight - step(g, h0[i]);
    }
  }
}

template <typename T, typename Rule>
void SweepBlob(const BlobUpdate& update, Regularization kind, const Rule& rule) {
  const auto step = rule.template Prepare<T>(update);
  const auto run = [&](auto sweep) {
    at::parallel_for(0, update.weights.numel(), kSweepGrain,
                     [&](std::int64_t begin, std::int64_t end) { sweep(begin, end); });
  };
  constexpr int kSlots = Rule::kSlots;
  switch (update.decay == 0 ? Regularization::kNone : kind) {
    case Regularization::kNone:
      run([&](std::int64_t begin, std::int64_t end) {
        SweepRange<T, kSlots, Regularization::kNone>(update, step, begin, end);
      });
      break;
    case Regularization::kL1:
      run([&](std::int64_t begin, std::int64_t end) {
        SweepRange<T, kSlots, Regularization::kL1>(update, step, begin, end);
      });
      break;
    case Regularization::kL2:
      run([&](std::int64_t begin, std::int64_t end) {
        SweepRange<T, kSlots, Regularization::kL2>(update, step, begin, end);
      });
      break;
  }
}

// On a device.
template <typename Rule>
void StepBlob(const BlobUpdate& update, Regularization kind, const Rule& rule) {
  const EngineGuard guard;
  const at::Tensor& weights = update.weights;
  at::Tensor g = update.gradient.mul(update.clip * update.average);
  if (update.decay != 0 && kind == Regularization::kL2) g.add_(weights, update.decay);
  if (update.decay != 0 && kind == Regularization::kL1) g.add_(weights.sign(), update.decay);
  weights.sub_(rule.Step(update, g));
}

// The UpdateRule around a rule value.
template <typename Rule>
class SweepRule final : public UpdateRule {
 public:
  SweepRule(Rule rule, Regularization kind) : rule_(rule), kind_(kind) {}
  int slots() const override { return Rule::kSlots; }
  void Apply(const BlobUpdate& update) const override {
    POSEIDON_CHECK(update.weights.is_contiguous() &&
                       update.gradient.is_contiguous() &&
                       update.gradient.numel() == update.weights.numel() &&
                       update.history[0].numel() == update.weights.numel(),
                   "an update needs contiguous tensors of one length");
    if (!update.weights.is_cpu()) return StepBlob(update, kind_, rule_);
    if (update.weights.scalar_type() == at::kDouble) {
      SweepBlob<double>(update, kind_, rule_);
    } else {
      SweepBlob<float>(update, kind_, rule_);
    }
  }

 private:
  const Rule rule_;
  const Regularization kind_;
};

// Makes a rule; each rule's file has one, and the table in update_rule.cc names it.
using RuleMaker = Result<std::unique_ptr<UpdateRule>> (*)(const SolverParameter& solver,
                                                          Regularization kind);
Result<std::unique_ptr<UpdateRule>> MakeSgd(const SolverParameter&, Regularization);
Result<std::unique_ptr<UpdateRule>> MakeNesterov(const SolverParameter&, Regularization);
Result<std::unique_ptr<UpdateRule>> MakeAdaGrad(const SolverParameter&, Regularization);
Result<std::unique_ptr<UpdateRule>> MakeRmsProp(const SolverParameter&, Regularization);
Result<std::unique_ptr<UpdateRule>> MakeAdaDelta(const SolverParameter&, Regularization);
Result<std::unique_ptr<UpdateRule>> MakeAdam(const SolverParameter&, Regularization);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_SWEEP_H_
