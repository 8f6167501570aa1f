// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_WORK_CLOCK_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_WORK_CLOCK_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "frontends/caffe/net/placement.h"
#include "poseidon/base/executor.h"

namespace poseidon::caffe {

enum class Work : std::uint8_t { kForward, kBackward, kUpdate };

// A layer's part of an iteration, from its begin to its end on the clock of the host.
struct LayerWork {
  Work work = Work::kForward;
  int layer = 0;
  std::uint64_t iteration = 0;
  TimePoint begin;
  TimePoint end;
};

// When the work on layers began and ended. On the host that is known as it ends. On a device, to which it is only launched then, it is
// measured by events around it in the current stream, and known at the next Mark.
//
// Thread: one.
class WorkClock {
 public:
  WorkClock(const Placement& placement, std::function<void(const LayerWork&)> tell);

  void Begin();
  // Of the work that began last.
  void End(Work work, int layer, std::uint64_t iteration);
  // Waits until a device has done all work that has ended so far. Tells of what an earlier Mark left untold.
  void Mark();
  // Tells of the work up to the last Mark, in its order. It takes some microseconds a layer on a device, which should be computing meanwhile.
  void Tell();

 private:
  using Events = std::pair<c10::Event, c10::Event>;  // around the work
  struct Launched {
    LayerWork work;
    Events events;
  };
  c10::Event Record();

  const Placement placement_;
  const std::function<void(const LayerWork&)> tell_;
  TimePoint began_;                       // on the host
  std::optional<c10::Event> begin_;       // on a device
  std::vector<Launched> launched_;        // behind the last mark
  std::vector<Launched> marked_;
  std::optional<c10::Event> mark_;        // a moment that both clocks know: the device's is not the host's
  TimePoint marked_at_;
  std::vector<c10::Event> spare_;         // to be recorded again
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_WORK_CLOCK_H_
