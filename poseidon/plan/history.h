// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_HISTORY_H_
#define POSEIDON_PLAN_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "poseidon/base/strong_id.h"
#include "poseidon/plan/plan.h"
#include "poseidon/plan/scheme.h"

namespace poseidon::plan {

// The plans of one model by the step each is followed from: while steps of two plans are under way
// at once, each keeps to its own.
class History {
 public:
  struct Choice {
    Scheme scheme = Scheme::kKeyValue;
    std::uint32_t send_position = 0;  // of those that are ready, the lowest leaves first
  };
  struct Entry {
    Step from;
    std::vector<Choice> by_layer;
  };

  // Before any plan every layer goes the key-value way, in order of declaration.
  explicit History(std::size_t layers);

  // `plan` holds from its switch step on, in the place of earlier plans for those steps. Pre: it is of as
  // many layers.
  void Use(const Plan& plan);
  const Entry& At(Step step) const;

 private:
  std::vector<Entry> entries_;  // ascending `from`, the first from step 0
};

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_HISTORY_H_
