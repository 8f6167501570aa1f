// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_TENSORFLOW_STEP_CLOCK_H_
#define POSEIDON_FRONTENDS_TENSORFLOW_STEP_CLOCK_H_

#include <cstdint>
#include <map>
#include <vector>

#include "poseidon/base/mutex.h"

namespace poseidon::tensorflow {

// Derives the times of a model's layers from what a graph shows: when its step began and when each gradient was there.
//
// Backward passes run from one gradient to the next. The time before the first gradient is every layer's forward pass
// and the first gradient's backward pass. It is divided by the usual count of products, one forward for two backward:
// layers' forward passes are to each other as their backward passes are.
//
// No op blocks a thread, so how long a step waited for means is derived here too. Of a step's own means, which are
// asked for as soon as they are pushed, it is what was left to wait once the last gradient was there. Of the means of
// the step before, which are asked for when a step begins, a layer's forward pass waits where its mean has not landed
// when the layers below are through: their passes count as long as in steps that waited for nothing before their
// backward pass.
//
// Thread: any.
class StepClock {
 public:
  struct Pass {
    std::uint32_t layer = 0;
    bool forward = false;
    std::int64_t begin = 0;  // nanoseconds
    std::int64_t end = 0;
  };

  struct Gradient {
    std::uint32_t layer = 0;
    std::int64_t time = 0;  // when it was there
  };
  struct Ended {
    std::uint64_t step = 0;    // that Begin named last
    std::vector<Pass> passes;  // of its layers, in the order of their ends
    std::int64_t waited = 0;   // nanoseconds for which it waited for means
  };

  void Begin(std::uint64_t step, std::int64_t now);
  void GradientIsThere(std::uint32_t layer, std::int64_t now);
  // An op asked for the mean of a step, this or the one before, that landed later.
  void Waited(std::uint32_t layer, std::uint64_t of_step, std::int64_t asked, std::int64_t landed);
  // Passes and waiting are empty where there were none, and when asked again.
  Ended End();

 private:
  struct Wait {
    std::uint32_t layer;
    std::uint64_t of_step;
    std::int64_t asked;
    std::int64_t landed;
  };
  struct Mean {
    std::int64_t sum = 0;  // nanoseconds
    std::int64_t steps = 0;
  };

  std::int64_t StoodStill(const std::vector<Gradient>& gradients, const std::vector<Wait>& waits) const
      POSEIDON_REQUIRES(mutex_);

  Mutex mutex_;
  std::uint64_t step_ POSEIDON_GUARDED_BY(mutex_) = 0;
  std::int64_t begin_ POSEIDON_GUARDED_BY(mutex_) = 0;
  std::vector<Gradient> gradients_ POSEIDON_GUARDED_BY(mutex_);
  std::vector<Wait> waits_ POSEIDON_GUARDED_BY(mutex_);
  bool warm_ POSEIDON_GUARDED_BY(mutex_) = false;  // a step with gradients has ended: the first one is slow
  // By layer, of steps whose forward passes waited for nothing.
  std::map<std::uint32_t, Mean> forward_ POSEIDON_GUARDED_BY(mutex_);
};

}  // namespace poseidon::tensorflow

#endif  // POSEIDON_FRONTENDS_TENSORFLOW_STEP_CLOCK_H_
