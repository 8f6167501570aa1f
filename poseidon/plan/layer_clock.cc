// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/layer_clock.h"

#include <algorithm>
#include <chrono>

namespace poseidon::plan {

TimePoint SteadyNow() {
  return {
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())};
}

LayerClock::LayerClock(int layers)
    : now_(Index(layers)), window_(kWindow, std::vector<LayerSeconds>(Index(layers))) {}

void LayerClock::EndIteration() {
  // The first iteration pays for memory and plans. It counts only until the second one replaces it.
  if (ended_ == 1) kept_ = 0;
  // The second iteration took the first one's slot, so the oldest is one behind.
  window_[kept_ < kWindow ? kept_ : (ended_ - 1) % kWindow] = now_;
  kept_ = std::min(kept_ + 1, kWindow);
  ++ended_;
  std::fill(now_.begin(), now_.end(), LayerSeconds{});
}

std::vector<LayerSeconds> LayerClock::Means() const {
  std::vector<LayerSeconds> means(now_.size());
  for (std::size_t layer = 0; layer < means.size(); ++layer) {
    for (std::size_t i = 0; i < kept_; ++i) {
      means[layer].forward += window_[i][layer].forward / static_cast<double>(kept_);
      means[layer].backward += window_[i][layer].backward / static_cast<double>(kept_);
    }
  }
  return means;
}

}  // namespace poseidon::plan
