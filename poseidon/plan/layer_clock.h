// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_LAYER_CLOCK_H_
#define POSEIDON_PLAN_LAYER_CLOCK_H_

#include <cstddef>
#include <vector>

#include "poseidon/base/executor.h"

namespace poseidon::plan {

// The cost of one layer per iteration, over all its passes.
struct LayerSeconds {
  double forward = 0;  // with its update
  double backward = 0;
};

// Returns the time of the same steady clock as the core's executors, so that spans of both fit into one trace.
TimePoint SteadyNow();

// Keeps the costs of the last iterations per layer and returns their means. Means, not medians: where
// workers share cores, a layer is now and then interrupted for a whole time slice, and that time is
// part of what a step takes.
class LayerClock {
 public:
  explicit LayerClock(int layers);
  void AddForward(int layer, Duration time) { now_[Index(layer)].forward += ToSeconds(time); }
  void AddBackward(int layer, Duration time) { now_[Index(layer)].backward += ToSeconds(time); }
  // The iteration is over.
  void EndIteration();
  // Iterations remembered, at most kWindow. The first one after the start is not among them once
  // there is a second: it pays for memory and plans of its own.
  int iterations() const { return static_cast<int>(kept_); }
  // Per layer; zeros before the first iteration ended.
  std::vector<LayerSeconds> Means() const;

 private:
  static constexpr std::size_t kWindow = 9;
  static std::size_t Index(int layer) { return static_cast<std::size_t>(layer); }

  std::vector<LayerSeconds> now_;
  std::vector<std::vector<LayerSeconds>> window_;  // [kWindow][layer]
  std::size_t ended_ = 0;
  std::size_t kept_ = 0;
};

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_LAYER_CLOCK_H_
