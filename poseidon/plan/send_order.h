// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_SEND_ORDER_H_
#define POSEIDON_PLAN_SEND_ORDER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "poseidon/plan/cost_model.h"

// Which layer leaves first where the bytes of several wait for the same link. Pure functions of a
// chain of layers in forward order.
namespace poseidon::plan {

// The step time when of the layers that are ready the one with the lowest place has the link,
// preempting the others, and one processor computes: rebuilds before the chain, and of those the
// lowest place first. Seconds. `places`: one per layer, all different.
double PlayedStepSeconds(std::span<const LayerCost> layers, std::span<const std::uint32_t> places);

// The place of each layer, 0 leaves first. The next forward pass decides: without rebuilds nothing
// is better (LeastStepSeconds). A layer whose rebuild is long leaves before all others where the
// step, played, is shorter by one hundredth: while the others are under way, it is rebuilt. At most
// eight layers are moved.
std::vector<std::uint32_t> SendOrder(std::span<const LayerCost> layers);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_SEND_ORDER_H_
