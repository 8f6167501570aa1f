// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/overlap.h"

#include <algorithm>
#include <functional>

namespace poseidon::session {
namespace {

// Sums of no step are empty: zeros for every rank.
void AddByRank(const std::vector<double>& more, std::vector<double>* sums) {
  sums->resize(std::max(sums->size(), more.size()));
  std::transform(more.begin(), more.end(), sums->begin(), sums->begin(), std::plus<>());
}

void SubtractByRank(const std::vector<double>& less, std::vector<double>* sums) {
  std::transform(less.begin(), less.end(), sums->begin(), sums->begin(), [](double earlier, double all) { return all - earlier; });
}

}  // namespace

void OverlapMeter::AddStep(const StepPace& pace, const std::vector<double>& computed, const std::vector<double>& on_device) {
  ++steps_;
  seconds_ += pace.seconds;
  waited_ += pace.waited;
  slowest_ += *std::max_element(computed.begin(), computed.end());
  busy_ += pace.busy;
  AddByRank(computed, &computed_);
  AddByRank(on_device, &on_device_);
}

void OverlapMeter::Add(const OverlapMeter& other) {
  steps_ += other.steps_;
  seconds_ += other.seconds_;
  waited_ += other.waited_;
  slowest_ += other.slowest_;
  busy_ += other.busy_;
  AddByRank(other.computed_, &computed_);
  AddByRank(other.on_device_, &on_device_);
}

OverlapMeter OverlapMeter::Since(const OverlapMeter& before) const {
  OverlapMeter later = *this;
  later.steps_ -= before.steps_;
  later.seconds_ -= before.seconds_;
  later.waited_ -= before.waited_;
  later.slowest_ -= before.slowest_;
  later.busy_ -= before.busy_;
  SubtractByRank(before.computed_, &later.computed_);
  SubtractByRank(before.on_device_, &later.on_device_);
  return later;
}

// Bounded after the sum, not step by step: workers begin a step at slightly different moments, which
// evens out over the steps.
double OverlapMeter::exposed() const { return std::clamp(seconds_ - slowest_, 0.0, waited_); }

// hidden = 1 - exposed / (busy - skew), where exposed is what a step took beyond its slowest worker's computing
// (docs/decisions/clocks-and-waiting.md, "Waiting has two reasons"). A layer that waits for a slower worker's gradient
// is on its way too: that time is no communication and leaves busy.
double OverlapMeter::hidden_share() const {
  const double communication = busy_ - skew();
  if (communication <= 0) return 1;
  return std::clamp(1 - exposed() / communication, 0.0, 1.0);
}

}  // namespace poseidon::session
