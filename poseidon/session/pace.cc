// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/pace.h"

#include <chrono>
#include <utility>

namespace poseidon::session {
namespace {

// Numbers that the workers share at a step's beginning, before those of each worker.
constexpr std::size_t kWishes = 2;
// Of so many steps at most the shared numbers are kept until every worker's are in. Two workers are never more than
// two steps apart, unless one has ended.
constexpr std::size_t kMostRounds = 4;

}  // namespace

std::shared_ptr<Pace::Numbers> Pace::Begin(Step step, const Wish& wish, TimePoint now, double waited, double on_device) {
  Round round{.numbers = std::make_shared<Numbers>(), .summed = {}, .ended = std::nullopt};
  std::vector<double>& values = round.numbers->values;
  values.assign(kWishes + 2 * workers_, 0.0);
  // A sum of flags is positive on all workers if one has set it. Of the seconds each worker fills its own number and
  // adds zeros to the others, so the sum holds everyone's (docs/decisions/clocks-and-waiting.md).
  values[0] = wish.stop ? 1.0 : 0.0;
  values[1] = wish.snapshot ? 1.0 : 0.0;
  if (begun_) {
    round.ended = StepPace{.begin = begun_at_, .waited = waited, .seconds = ToSeconds(now - begun_at_)};
    values[kWishes + self_.value()] = round.ended->seconds - waited;
    values[kWishes + workers_ + self_.value()] = on_device;
  }
  begun_ = step;
  begun_at_ = now;
  rounds_.push_back(std::move(round));
  return rounds_.back().numbers;
}

void Pace::SumBegan(std::shared_future<Status> summed) { rounds_.back().summed = std::move(summed); }

std::vector<Pace::Ended> Pace::TakeEnded() {
  std::vector<Ended> taken;
  while (!rounds_.empty()) {
    Round& oldest = rounds_.front();
    const bool here = oldest.summed.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    if (!here && rounds_.size() <= kMostRounds) break;
    // Busy counts up, so a step's is the difference of two. Where a step's numbers never came, the next one has
    // none to subtract and is left out too.
    const std::optional<double> before = std::exchange(busy_, here ? std::optional(oldest.numbers->busy) : std::nullopt);
    if (before && here && oldest.ended && oldest.summed.get().ok()) {
      oldest.ended->busy = *busy_ - *before;
      const auto computed = oldest.numbers->values.begin() + kWishes;
      taken.push_back({*oldest.ended, {computed, computed + workers_}, {computed + workers_, oldest.numbers->values.end()}});
    }
    rounds_.pop_front();
  }
  return taken;
}

Wish Pace::wishes() const {
  const std::vector<double>& values = rounds_.back().numbers->values;
  return {.stop = values[0] > 0, .snapshot = values[1] > 0};
}

}  // namespace poseidon::session
