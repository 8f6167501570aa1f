// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_SEND_ORDER_H_
#define POSEIDON_PLAN_SEND_ORDER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "poseidon/plan/cost_model.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"

// Which layer leaves first where the bytes of several wait for the same link. Pure functions of a
// chain of layers in forward order, or of a plan.
namespace poseidon::plan {

// Playing a step looks at every layer at every event: longer chains are not worth it.
inline constexpr std::size_t kMostPlayedLayers = 1000;

// The step time when of the layers that are ready the one with the lowest place has the link,
// preempting the others, and one processor computes: rebuilds before the chain, and of those the
// lowest place first. Seconds. `places`: one per layer, all different.
double PlayedStepSeconds(std::span<const LayerCost> layers, std::span<const std::uint32_t> places);

// The place of each layer, 0 leaves first. The next forward pass decides: without rebuilds nothing
// is better (LeastStepSeconds). A layer whose rebuild is long leaves before all others where the
// step, played, is shorter by one hundredth: while the others are under way, it is rebuilt. At most
// eight layers are moved.
std::vector<std::uint32_t> SendOrder(std::span<const LayerCost> layers);

// The layers whose gradients come when at most `seconds` of the backward pass are left, by
// declaration index: for them it matters what has been committed to the link before, since the next
// forward pass will wait for them. None where `plan` has a tenth more to do for the link than for
// the processor (there the link's idle moments cost more than any layer's wait), or was not measured.
std::vector<bool> LastOfBackward(std::span<const LayerSpec> layers, const Plan& plan,
                                 double seconds);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_SEND_ORDER_H_
