// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/send_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "poseidon/base/check.h"

namespace poseidon::plan {
namespace {

// A layer leaves early only where that shortens the step by one hundredth (docs/decisions/schemes.md).
constexpr double kWorthIt = 0.99;
// Every move plays a step for each layer that may move, so the moves take at most 64 plays.
constexpr std::size_t kMostMoved = 8;
// Links are never measured to the percent: where link and processor have about equal work the processor is the bound.
constexpr double kLinkBound = 1.1;
// Layers whose windows are this full decide the step, whatever is computed or measured exactly.
constexpr double kNearlyFull = 0.98;

// One step from its first backward to its last forward: all layers have landed before the next backward
// begins, so every step is alike.
class Play {
 public:
  Play(std::span<const LayerCost> layers, std::span<const std::uint32_t> places)
      : layers_(layers), places_(places), states_(layers.size()) {}

  double Run() {
    while (next_forward_ < layers_.size()) {
      const std::optional<std::size_t> sending = First(Stage::kSending);
      const std::optional<std::size_t> rebuilding = First(Stage::kRebuilding);
      const bool chain_runs = !rebuilding && ChainIsReady();
      const auto moves = [&](std::size_t i) {
        return states_[i].stage == Stage::kTravelling || sending == i || rebuilding == i;
      };
      double least = chain_runs ? chain_left_ : std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < states_.size(); ++i) {
        if (moves(i)) least = std::min(least, states_[i].left);
      }
      // The layer that the chain waits for is sending, travelling or being rebuilt, so something always moves. Whatever
      // takes least ends exactly (x - x is 0), so the loop ends.
      POSEIDON_CHECK(least < std::numeric_limits<double>::infinity(), "a step goes on");
      now_ += least;
      for (std::size_t i = 0; i < states_.size(); ++i) {
        if (moves(i)) Spend(i, least);
      }
      if (chain_runs) SpendOnChain(least);
    }
    return now_;
  }

 private:
  enum class Stage { kComputing, kSending, kTravelling, kRebuilding, kLanded };
  struct State {
    Stage stage = Stage::kComputing;
    double left = 0;
  };

  std::optional<std::size_t> First(Stage stage) const {
    std::optional<std::size_t> first;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (states_[i].stage == stage && (!first || places_[i] < places_[*first])) first = i;
    }
    return first;
  }
  void Spend(std::size_t i, double seconds) {
    State& state = states_[i];
    state.left -= seconds;
    // Stages that take no time end at once: without a rebuild a layer lands when it has travelled.
    while (state.left <= 0 && state.stage != Stage::kLanded) {
      state.stage = static_cast<Stage>(static_cast<int>(state.stage) + 1);
      state.left = state.stage == Stage::kSending      ? layers_[i].transfer
                   : state.stage == Stage::kTravelling ? layers_[i].latency
                   : state.stage == Stage::kRebuilding ? layers_[i].rebuild
                                                       : 0;
    }
  }
  bool ChainIsReady() const {
    return backward_left_ > 0 || states_[next_forward_].stage == Stage::kLanded;
  }
  void SpendOnChain(double seconds) {
    chain_left_ -= seconds;
    if (chain_left_ > 0) return;
    if (backward_left_ > 0) {
      // A layer that computes has no time left of its own, so spending none begins its transfer.
      Spend(--backward_left_, 0);
    } else {
      ++next_forward_;
    }
    chain_left_ = NextOfChain();
  }
  double NextOfChain() const {
    if (backward_left_ > 0) return layers_[backward_left_ - 1].backward;
    return next_forward_ < layers_.size() ? layers_[next_forward_].forward : 0;
  }

  const std::span<const LayerCost> layers_;
  const std::span<const std::uint32_t> places_;
  std::vector<State> states_;
  double now_ = 0;
  std::size_t backward_left_ = layers_.size();  // layers whose backward is not over
  std::size_t next_forward_ = 0;
  double chain_left_ = NextOfChain();
};

std::vector<std::uint32_t> ToFront(std::span<const std::uint32_t> places, std::size_t layer) {
  std::vector<std::uint32_t> moved(places.begin(), places.end());
  for (std::uint32_t& place : moved) place += place < places[layer] ? 1 : 0;
  moved[layer] = 0;
  return moved;
}

// Returns how much of the backward pass is left when the lowest layers' first gradient comes. Of the layers
// 0, 1, ... as long as their windows are full (LeastStepSeconds) it is the highest one's: if transfers up to that
// layer began later, the step would take longer. 0 where the window of layer 0 is not full.
double BackwardLeftAtFullWindows(std::span<const std::size_t> order, const Plan& plan) {
  double outside = 0;
  for (const LayerPlan& layer : plan.layers) {
    outside += layer.measured.forward_seconds + layer.measured.backward_seconds;
  }
  std::vector<double> windows;
  double transfers = 0;
  for (const std::size_t i : order) {
    const LayerPlan& layer = plan.layers[i];
    transfers += layer.transfer_seconds;
    windows.push_back(outside + transfers);
    outside -= layer.measured.forward_seconds + layer.measured.backward_seconds;
  }
  // Not empty: LastOfBackward asks only about plans that compute, and these have layers.
  const double longest = *std::max_element(windows.begin(), windows.end());
  double left = 0;
  for (std::size_t j = 0; j + 1 < windows.size() && windows[j + 1] >= kNearlyFull * longest; ++j) {
    left += plan.layers[order[j]].measured.backward_seconds;
  }
  return windows.front() >= kNearlyFull * longest ? left : 0;
}

}  // namespace

double PlayedStepSeconds(std::span<const LayerCost> layers, std::span<const std::uint32_t> places) {
  POSEIDON_CHECK(places.size() == layers.size(), "every layer has a place");
  return Play(layers, places).Run();
}

std::vector<std::uint32_t> SendOrder(std::span<const LayerCost> layers) {
  std::vector<std::uint32_t> places(layers.size());
  std::iota(places.begin(), places.end(), 0u);
  std::vector<std::size_t> rebuilt;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].rebuild > 0) rebuilt.push_back(i);
  }
  if (rebuilt.empty() || layers.size() > kMostPlayedLayers) return places;
  std::stable_sort(rebuilt.begin(), rebuilt.end(), [&](std::size_t a, std::size_t b) {
    return layers[a].rebuild > layers[b].rebuild;
  });
  rebuilt.resize(std::min(rebuilt.size(), kMostMoved));
  double least = PlayedStepSeconds(layers, places);
  for (std::size_t moves = 0; moves < kMostMoved; ++moves) {
    std::vector<std::uint32_t> best;
    for (const std::size_t i : rebuilt) {
      std::vector<std::uint32_t> moved = ToFront(places, i);
      const double seconds = PlayedStepSeconds(layers, moved);
      // The first candidate has to be worth the move, the others have to be better than it.
      if (seconds >= least * (best.empty() ? kWorthIt : 1)) continue;
      least = seconds;
      best = std::move(moved);
    }
    if (best.empty()) break;
    places = std::move(best);
  }
  return places;
}

std::vector<bool> LastOfBackward(std::span<const LayerSpec> layers, const Plan& plan,
                                 double seconds) {
  std::vector<bool> last(layers.size(), false);
  double link = 0;
  for (const LayerPlan& layer : plan.layers) link += layer.transfer_seconds;
  if (plan.compute_seconds <= 0 || link > kLinkBound * plan.compute_seconds) return last;
  const std::vector<std::size_t> order = ForwardOrder(layers);
  const double reach = BackwardLeftAtFullWindows(order, plan) + seconds;
  double left = 0;
  for (const std::size_t i : order) {
    if (left > reach) break;
    last[i] = true;
    left += plan.layers[i].measured.backward_seconds;
  }
  return last;
}

}  // namespace poseidon::plan
