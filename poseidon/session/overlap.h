// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_OVERLAP_H_
#define POSEIDON_SESSION_OVERLAP_H_

#include <cstdint>
#include <vector>

#include "poseidon/base/executor.h"

namespace poseidon::session {

// How long a step took this worker.
struct StepPace {
  TimePoint begin{};
  double waited = 0;   // seconds, for layers
  double seconds = 0;  // to the beginning of the next step
  double busy = 0;     // seconds of these in which some layer was on its way
};

// Tells what waiting was for: synchronous workers wait for bytes, and for each other. A step cannot be
// shorter than its slowest worker's computing; what it took beyond that is communication that nothing
// hid. A mean that is waited for in the step after its gradient's counts there, as the time on the way does. All times in
// seconds, of one worker, summed over steps.
class OverlapMeter {
 public:
  // `computed`: by rank, the seconds that each worker computed in the step, which are its seconds without its waiting; `on_device`:
  // those that its device did, by its own clock.
  void AddStep(const StepPace& pace, const std::vector<double>& computed, const std::vector<double>& on_device = {});
  // Takes in another model's steps.
  void Add(const OverlapMeter& other);
  // The steps that came after `before`, an earlier state of this meter.
  OverlapMeter Since(const OverlapMeter& before) const;

  // Waited for bytes, that is, beyond the slowest worker: 0 to waited().
  double exposed() const;
  // Waited for slower workers, the rest.
  double skew() const { return waited_ - exposed(); }
  double waited() const { return waited_; }
  double seconds() const { return seconds_; }
  double busy() const { return busy_; }
  std::uint64_t steps() const { return steps_; }
  // By rank, this worker's own among them; empty before the first step.
  const std::vector<double>& computed() const { return computed_; }
  const std::vector<double>& on_device() const { return on_device_; }

  // Share of the communication that computing hid, 0 to 1: of the time during which some layer was on its way; what was
  // only waiting for a slower worker is no communication.
  double hidden_share() const;

 private:
  std::uint64_t steps_ = 0;
  double seconds_ = 0;
  double waited_ = 0;
  double slowest_ = 0;
  double busy_ = 0;
  std::vector<double> computed_;
  std::vector<double> on_device_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_OVERLAP_H_
