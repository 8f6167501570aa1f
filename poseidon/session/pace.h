// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_PACE_H_
#define POSEIDON_SESSION_PACE_H_

#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "poseidon/base/executor.h"
#include "poseidon/base/status.h"
#include "poseidon/base/strong_id.h"
#include "poseidon/session/overlap.h"

namespace poseidon::session {

// A worker's wishes for the step that it begins. All workers learn what any of them wants.
struct Wish {
  bool stop = false;
  bool snapshot = false;
};

// The steps of one model as one worker begins them, and what all workers tell each other as a step begins, in one sum:
// what each wishes, and how long it and its device computed in the step before. Once everyone's numbers are in, a step that has ended
// shows what its waiting was for (overlap.h).
//
// Pure state: the caller makes the sum, and says what time it is.
// Thread: one.
class Pace {
 public:
  // What the workers sum for one step. The caller's sum lends it until it ends, in whatever order the sums end.
  struct Numbers {
    std::vector<double> values;
    double busy = 0;  // seconds so far in which some layer was on its way; written before the sum ends
  };
  // A step of which every worker's numbers are in.
  struct Ended {
    StepPace pace;
    std::vector<double> computed;   // by rank, the seconds that each worker computed in it
    std::vector<double> on_device;  // by rank, the seconds that each worker's device did, as its program said
  };

  Pace(Rank self, std::uint16_t workers) : self_(self), workers_(workers) {}

  // False before the first step.
  bool has_begun() const { return begun_.has_value(); }
  // Whether this step has begun: a front end begins it again after a refusal.
  bool HasBegun(Step step) const { return begun_ && step <= *begun_; }
  // The step begins at `now`, and the one before ends, in which the program waited `waited` seconds for layers and its device computed
  // for `on_device`. Returns the numbers to sum; SumBegan must follow. Pre: !HasBegun(step).
  std::shared_ptr<Numbers> Begin(Step step, const Wish& wish, TimePoint now, double waited, double on_device);
  // `summed` becomes ready when every worker's numbers are in those that Begin returned last, or never will be.
  void SumBegan(std::shared_future<Status> summed);

  // Returns the steps that have ended of which every worker's numbers have come since the last call, in their order.
  std::vector<Ended> TakeEnded();

  // The sum of the step begun last. Pre: has_begun().
  const std::shared_future<Status>& summed() const { return rounds_.back().summed; }
  // The wishes of all workers for that step. Pre: `summed` is ready, and OK.
  Wish wishes() const;

 private:
  struct Round {
    std::shared_ptr<Numbers> numbers;
    std::shared_future<Status> summed;
    std::optional<StepPace> ended;  // the step before, where there is one
  };

  const Rank self_;
  const std::uint16_t workers_;
  std::optional<Step> begun_;  // the step begun last
  TimePoint begun_at_;
  std::deque<Round> rounds_;   // of the last steps, the newest last
  std::optional<double> busy_;  // of the step that left rounds_ last, where it was known
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_PACE_H_
