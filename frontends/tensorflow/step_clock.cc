// SPDX-License-Identifier: Apache-2.0
#include "frontends/tensorflow/step_clock.h"

#include <algorithm>
#include <utility>

namespace poseidon::tensorflow {

void StepClock::Begin(std::uint64_t step, std::int64_t now) {
  std::lock_guard lock(mutex_);
  step_ = step;
  begin_ = now;
  gradients_.clear();
}

void StepClock::GradientIsThere(std::uint32_t layer, std::int64_t now) {
  std::lock_guard lock(mutex_);
  gradients_.push_back({layer, now});
}

std::vector<StepClock::Pass> StepClock::End(std::uint64_t* step) {
  std::unique_lock lock(mutex_);
  *step = step_;
  std::vector<Gradient> gradients = std::exchange(gradients_, {});
  const std::int64_t begin = begin_;
  lock.unlock();
  if (gradients.empty()) return {};
  std::stable_sort(gradients.begin(), gradients.end(), [](const auto& a, const auto& b) { return a.time < b.time; });

  // With first = forward + b1 and forward = (b1 + rest) / 2:  b1 = (2 first - rest) / 3.
  const std::int64_t first = std::max<std::int64_t>(gradients.front().time - begin, 0);
  const std::int64_t rest = gradients.back().time - gradients.front().time;
  const std::int64_t top_backward = std::clamp<std::int64_t>((2 * first - rest) / 3, 0, first);
  const std::int64_t forward = first - top_backward;

  std::vector<Pass> backward;
  std::int64_t since = gradients.front().time - top_backward;
  for (const Gradient& gradient : gradients) {
    backward.push_back({gradient.layer, false, since, gradient.time});
    since = gradient.time;
  }
  // Forward passes in the order of the layers' numbers, which is forward order.
  std::vector<Pass> passes = backward;
  std::sort(passes.begin(), passes.end(), [](const Pass& a, const Pass& b) { return a.layer < b.layer; });
  const double all = static_cast<double>(top_backward + rest);
  std::int64_t at = begin;
  for (Pass& pass : passes) {
    const double share = all > 0 ? static_cast<double>(pass.end - pass.begin) / all : 0.0;
    const auto takes = static_cast<std::int64_t>(share * static_cast<double>(forward));
    pass = {pass.layer, true, at, at + takes};
    at += takes;
  }
  passes.insert(passes.end(), backward.begin(), backward.end());
  return passes;
}

}  // namespace poseidon::tensorflow
