// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BENCHMARKS_REPLAY_STREAM_H_
#define POSEIDON_BENCHMARKS_REPLAY_STREAM_H_

#include <cstdint>
#include <mutex>

namespace poseidon::replay {

// Seconds of the monotonic clock; sleeping until one of them.
double Now();
void SleepUntil(double when);

// An accelerator that computes one thing after the other. Work is due at an absolute time: what begins
// right behind other work begins when that was due, not when its caller came, so that sleeping too long
// in one layer is made up in the next.
class Timeline {
 public:
  // When work of so many `seconds`, queued at `now`, is done. `idle`: the caller had nothing to compute
  // until now.
  double Queue(double seconds, bool idle, double now) {
    free_at_ = (idle && now > free_at_ ? now : free_at_) + seconds;
    return free_at_;
  }

 private:
  double free_at_ = 0;
};

// Such an accelerator, played by sleeping. Or a CPU that burns as much of its caller's time on a core:
// whoever else needs the core then delays the work.
// Thread: any.
class Stream {
 public:
  enum class Kind { kSleeps, kSpins };

  explicit Stream(Kind kind = Kind::kSleeps) : kind_(kind) {}

  // Blocks for the `seconds` that the work takes, behind what was queued before.
  void Run(double seconds, bool idle);

 private:
  const Kind kind_;
  std::mutex core_;  // held while spinning
  std::mutex mutex_;
  Timeline timeline_;
};

}  // namespace poseidon::replay

#endif  // POSEIDON_BENCHMARKS_REPLAY_STREAM_H_
