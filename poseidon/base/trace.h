// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_TRACE_H_
#define POSEIDON_BASE_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "poseidon/base/executor.h"
#include "poseidon/base/mutex.h"

namespace poseidon {

// One row of a worker's timeline.
enum class TraceLane : std::uint8_t { kCompute, kSend, kReceive, kSum, kRebuild, kWait, kToHost, kToDevice };
inline constexpr TraceLane kLastLane = TraceLane::kToDevice;
// "compute", "send": as traces name it.
const char* NameOf(TraceLane lane);

// One activity between two moments; `layer` is an index into the layers of `model`, or -1.
struct TraceSpan {
  TraceLane lane = TraceLane::kCompute;
  std::int32_t layer = -1;
  std::uint64_t step = 0;
  TimePoint begin;
  TimePoint end;
  std::uint64_t bytes = 0;   // payload moved, 0 where none
  const char* label = "";    // a string literal: "forward", "backward", "push", "result", ...
  std::uint16_t model = 0;   // whose layer it is
};

// Collects spans by step, and keeps whole steps within a bound: each model's first few, and of the last ones as many as
// fit. The oldest of the others makes room for a new one; the first few are given up only where a step would not fit
// beside them. Of a step that is larger than the bound on its own, the later spans are not kept.
// Thread: all members may be called from any thread.
class TraceRecorder {
 public:
  struct Options {
    std::size_t spans = 200'000;    // kept at most, above 0
    std::size_t first_steps = 3;    // of each model, from the beginning or from the last Take
    std::size_t last_steps = ~std::size_t{0};  // of each model, as far as they fit
  };

  explicit TraceRecorder(const Options& options);
  void Record(const TraceSpan& span);
  // The spans that are kept, in the order they ended; empties the recorder.
  std::vector<TraceSpan> Take();

 private:
  struct Kept {
    TimePoint began;
    std::vector<TraceSpan> spans;
  };
  using ByStep = std::map<std::uint64_t, Kept>;
  // The steps of one model.
  struct Steps {
    Kept* Find(std::uint64_t step);

    ByStep first;
    ByStep last;
    std::uint64_t given_up = 0;  // of the steps below this, those that are not here do not come back
  };

  Kept* Add(const TraceSpan& span, Steps* steps) POSEIDON_REQUIRES(mutex_);
  void GiveUp(Steps* steps, ByStep* among, ByStep::iterator step) POSEIDON_REQUIRES(mutex_);
  bool MakeRoom(const Kept* in) POSEIDON_REQUIRES(mutex_);

  const Options options_;
  Mutex mutex_;
  std::map<std::uint16_t, Steps> models_ POSEIDON_GUARDED_BY(mutex_);
  std::size_t spans_ POSEIDON_GUARDED_BY(mutex_) = 0;  // in all steps together
};

}  // namespace poseidon

#endif  // POSEIDON_BASE_TRACE_H_
