// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_MESSAGING_ORDER_H_
#define POSEIDON_MESSAGING_ORDER_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "poseidon/base/strong_id.h"
#include "poseidon/messaging/channel.h"

// Which of the layers that are ready leaves first. One order is Poseidon's; the others are those
// of published systems, for comparisons on the same code. Pure functions.
namespace poseidon::messaging {

enum class Order : std::uint8_t {
  kNextForward,  // the older step, then the layer that the next forward pass needs first, as planned
  kArrival,      // the older step, then as they come: wait-free backpropagation (ATC 2017)
  kLayer,        // the lowest layer, whatever the step: P3 (MLSys 2019)
  kTwoPhase,     // contributions as they come, results behind them by layer: DeAR (ICDCS 2023)
};

// A contribution on its way to its owner (or a factor to the peers), or the owner's result.
enum class Leg : std::uint8_t { kContribution, kResult };

// `position`: the plan's (plan/send_order.h), the forward pass's where nothing is rebuilt.
constexpr Priority PriorityOf(Order order, Leg leg, Step step, std::uint32_t position) {
  switch (order) {
    case Order::kNextForward:
      break;
    case Order::kArrival:
      return {Priority::kData, step.value(), 0};
    case Order::kLayer:
      return {Priority::kData, 0, position};
    case Order::kTwoPhase:
      return {Priority::kData, step.value(), leg == Leg::kResult ? position + 1 : 0};
  }
  return {Priority::kData, step.value(), position};
}

// "next-forward", "arrival", "layer", "two-phase".
constexpr std::string_view NameOf(Order order) {
  switch (order) {
    case Order::kNextForward:
      return "next-forward";
    case Order::kArrival:
      return "arrival";
    case Order::kLayer:
      return "layer";
    case Order::kTwoPhase:
      return "two-phase";
  }
  return "?";
}

constexpr std::optional<Order> ParseOrder(std::string_view name) {
  for (const Order order :
       {Order::kNextForward, Order::kArrival, Order::kLayer, Order::kTwoPhase}) {
    if (NameOf(order) == name) return order;
  }
  return std::nullopt;
}

}  // namespace poseidon::messaging

#endif  // POSEIDON_MESSAGING_ORDER_H_
