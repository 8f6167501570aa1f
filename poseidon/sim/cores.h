// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SIM_CORES_H_
#define POSEIDON_SIM_CORES_H_

#include <cstddef>
#include <vector>

#include "poseidon/base/executor.h"

namespace poseidon::sim {

// The processor cores of a machine. Work gets the core that is free first, in the order in which it asks, and keeps it to its end: close
// to what a fair scheduler does where pieces of work are short beside what is measured.
//
// Thread: the simulation's.
class Cores {
 public:
  // At least one.
  explicit Cores(std::size_t count);
  // The time from `now` until `work` is done that asks at `now`: waiting for a core, then the work.
  Duration Take(TimePoint now, Duration work);

 private:
  std::vector<TimePoint> free_at_;
};

}  // namespace poseidon::sim

#endif  // POSEIDON_SIM_CORES_H_
