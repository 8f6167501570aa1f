// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sim/cores.h"

#include <algorithm>

#include "poseidon/base/check.h"

namespace poseidon::sim {

Cores::Cores(std::size_t count) : free_at_(count) { POSEIDON_CHECK(count > 0, "a machine has a core"); }

Duration Cores::Take(TimePoint now, Duration work) {
  TimePoint& core = *std::min_element(free_at_.begin(), free_at_.end());
  core = std::max(core, now) + work;
  return core - now;
}

}  // namespace poseidon::sim
