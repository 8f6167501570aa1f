// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_TENSORFLOW_STEP_CLOCK_H_
#define POSEIDON_FRONTENDS_TENSORFLOW_STEP_CLOCK_H_

#include <cstdint>
#include <mutex>
#include <vector>

namespace poseidon::tensorflow {

// What the layers of a model take, of which a graph shows only when its step began and when each gradient was there.
//
// Backward passes run from one gradient to the next. What lies before the first gradient is every layer's forward pass and
// the first gradient's backward pass. It is divided by the usual count of products, one forward for two backward: layers'
// forward passes are to each other as their backward passes are.
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

  void Begin(std::uint64_t step, std::int64_t now);
  void GradientIsThere(std::uint32_t layer, std::int64_t now);
  // Sets *step to the step that Begin named last; the passes of its layers, in the order of their ends. Empty where there is
  // none, and when asked again.
  std::vector<Pass> End(std::uint64_t* step);

 private:
  struct Gradient {
    std::uint32_t layer;
    std::int64_t time;
  };

  std::mutex mutex_;
  std::uint64_t step_ = 0;
  std::int64_t begin_ = 0;
  std::vector<Gradient> gradients_;
};

}  // namespace poseidon::tensorflow

#endif  // POSEIDON_FRONTENDS_TENSORFLOW_STEP_CLOCK_H_
