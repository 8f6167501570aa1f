// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/overlap.h"

#include <algorithm>

namespace poseidon::session {

void OverlapMeter::AddStep(double seconds, double waited, double slowest) {
  ++steps_;
  seconds_ += seconds;
  waited_ += waited;
  slowest_ += slowest;
}

void OverlapMeter::Add(const OverlapMeter& other) {
  steps_ += other.steps_;
  seconds_ += other.seconds_;
  waited_ += other.waited_;
  slowest_ += other.slowest_;
}

// Bounded after the sum, not step by step: workers begin a step at slightly different moments, which
// evens out over the steps.
double OverlapMeter::exposed() const { return std::clamp(seconds_ - slowest_, 0.0, waited_); }

double OverlapMeter::hidden_share(double busy) const {
  const double communication = busy - skew();
  if (communication <= 0) return 1;
  return std::clamp(1 - exposed() / communication, 0.0, 1.0);
}

}  // namespace poseidon::session
