// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BENCHMARKS_REPLAY_STREAM_H_
#define POSEIDON_BENCHMARKS_REPLAY_STREAM_H_

#include <cstdint>
#include <mutex>

namespace poseidon::replay {

// Seconds of the monotonic clock; sleeping until one of them.
double Now();
void SleepUntil(double when);

// An accelerator that computes one thing after the other and is played by sleeping. Work is due at an
// absolute time: what begins right behind other work begins when that was due, not when its caller woke
// up, so that sleeping too long in one layer is made up in the next. Or a CPU that burns as much of its
// caller's time on a core: whoever else needs the core then delays the work.
// Thread: any.
class Stream {
 public:
  enum class Kind { kSleeps, kSpins };

  explicit Stream(Kind kind = Kind::kSleeps) : kind_(kind) {}

  // Blocks for the `seconds` that the work takes, behind what was queued before. `idle`: the caller had
  // nothing to compute until now.
  void Run(double seconds, bool idle);
  // Seconds queued so far.
  double busy() const;

 private:
  const Kind kind_;
  std::mutex core_;  // held while spinning
  mutable std::mutex mutex_;
  double free_at_ = 0;
  double busy_ = 0;
};

}  // namespace poseidon::replay

#endif  // POSEIDON_BENCHMARKS_REPLAY_STREAM_H_
