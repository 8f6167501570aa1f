// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/layer_clock.h"

#include <algorithm>
#include <chrono>

namespace poseidon::caffe {

TimePoint SteadyNow() {
  return {
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())};
}

LayerClock::LayerClock(int layers)
    : now_(Index(layers)), window_(kWindow, std::vector<LayerSeconds>(Index(layers))) {}

void LayerClock::EndIteration() {
  if (ended_ == 1) kept_ = 0;
  window_[kept_ < kWindow ? kept_ : ended_ % kWindow] = now_;
  kept_ = std::min(kept_ + 1, kWindow);
  ++ended_;
  std::fill(now_.begin(), now_.end(), LayerSeconds{});
}

std::vector<LayerSeconds> LayerClock::Medians() const {
  std::vector<LayerSeconds> medians(now_.size());
  if (kept_ == 0) return medians;
  std::vector<double> values(kept_);
  const auto median = [&](std::size_t layer, double LayerSeconds::*part) {
    for (std::size_t i = 0; i < kept_; ++i) values[i] = window_[i][layer].*part;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(kept_ / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  };
  for (std::size_t layer = 0; layer < medians.size(); ++layer) {
    medians[layer] = {median(layer, &LayerSeconds::forward),
                      median(layer, &LayerSeconds::backward)};
  }
  return medians;
}

}  // namespace poseidon::caffe
