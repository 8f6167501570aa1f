// SPDX-License-Identifier: Apache-2.0
#include "frontends/tensorflow/step_clock.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace poseidon::tensorflow {

namespace {

using Pass = StepClock::Pass;
using Gradient = StepClock::Gradient;

// Of gradients in the order of their times.
std::vector<Pass> PassesOf(std::int64_t begin, const std::vector<Gradient>& gradients) {
  if (gradients.empty()) return {};
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

}  // namespace

void StepClock::Begin(std::uint64_t step, std::int64_t now) {
  MutexLock lock(mutex_);
  step_ = step;
  begin_ = now;
  gradients_.clear();
}

void StepClock::GradientIsThere(std::uint32_t layer, std::int64_t now) {
  MutexLock lock(mutex_);
  gradients_.push_back({layer, now});
}

void StepClock::Waited(std::uint32_t layer, std::uint64_t of_step, std::int64_t asked, std::int64_t landed) {
  MutexLock lock(mutex_);
  waits_.push_back({layer, of_step, asked, landed});
}

StepClock::Ended StepClock::End() {
  MutexLock lock(mutex_);
  std::vector<Gradient> gradients = std::exchange(gradients_, {});
  std::stable_sort(gradients.begin(), gradients.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
  const std::vector<Wait> waits = std::exchange(waits_, {});
  Ended ended{.step = step_, .passes = PassesOf(begin_, gradients), .waited = StoodStill(gradients, waits)};
  const bool late = std::any_of(waits.begin(), waits.end(), [&ended](const Wait& wait) { return wait.of_step < ended.step; });
  if (!gradients.empty() && !late && std::exchange(warm_, true)) {
    for (const Pass& pass : ended.passes) {
      if (!pass.forward) continue;
      Mean& mean = forward_[pass.layer];
      mean.sum += pass.end - pass.begin;
      ++mean.steps;
    }
  }
  return ended;
}

std::int64_t StepClock::StoodStill(const std::vector<Gradient>& gradients, const std::vector<Wait>& waits) const {
  std::map<std::uint32_t, std::int64_t> landed;  // of the means of the step before, by layer: when
  std::int64_t asked = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = 0;  // of this step's means
  for (const Wait& wait : waits) {
    if (wait.of_step < step_) {
      landed[wait.layer] = wait.landed;
    } else {
      asked = std::min(asked, wait.asked);
      last = std::max(last, wait.landed);
    }
  }
  const std::int64_t computed = gradients.empty() ? begin_ : gradients.back().time;
  std::int64_t waited = std::max<std::int64_t>(last - std::max(computed, asked), 0);
  if (landed.empty()) return waited;
  // Layers' numbers are their forward order. What is not waited for was there.
  for (const auto& [layer, mean] : forward_) landed.try_emplace(layer, begin_);
  std::int64_t now = begin_;
  for (const auto& [layer, time] : landed) {
    waited += std::max<std::int64_t>(time - now, 0);
    now = std::max(now, time);
    const auto found = forward_.find(layer);
    if (found != forward_.end()) now += found->second.sum / found->second.steps;
  }
  return waited;
}

}  // namespace poseidon::tensorflow
