// SPDX-License-Identifier: Apache-2.0
#include "poseidon/messaging/order.h"

#include <gtest/gtest.h>

namespace poseidon::messaging {
namespace {

constexpr Leg kPush = Leg::kContribution;

TEST(PriorityOf, NextForwardIsTheOlderStepThenTheLowerLayer) {
  const Order order = Order::kNextForward;
  EXPECT_LT(PriorityOf(order, kPush, Step(4), 9), PriorityOf(order, kPush, Step(5), 0));
  EXPECT_LT(PriorityOf(order, kPush, Step(5), 0), PriorityOf(order, Leg::kResult, Step(5), 1));
  EXPECT_EQ(PriorityOf(order, kPush, Step(5), 3), PriorityOf(order, Leg::kResult, Step(5), 3));
  EXPECT_LT(kControlPriority, PriorityOf(order, kPush, Step(0), 0));
}

TEST(PriorityOf, ArrivalKnowsNoLayers) {
  const Order order = Order::kArrival;
  EXPECT_EQ(PriorityOf(order, kPush, Step(5), 9), PriorityOf(order, Leg::kResult, Step(5), 0));
  EXPECT_LT(PriorityOf(order, kPush, Step(4), 9), PriorityOf(order, kPush, Step(5), 0));
}

TEST(PriorityOf, LayerKnowsNoSteps) {
  const Order order = Order::kLayer;
  EXPECT_LT(PriorityOf(order, kPush, Step(5), 0), PriorityOf(order, Leg::kResult, Step(4), 1));
  EXPECT_EQ(PriorityOf(order, kPush, Step(5), 1), PriorityOf(order, kPush, Step(4), 1));
}

TEST(PriorityOf, TwoPhaseSendsResultsBehindEveryContributionOfTheStep) {
  const Order order = Order::kTwoPhase;
  EXPECT_LT(PriorityOf(order, kPush, Step(5), 9), PriorityOf(order, Leg::kResult, Step(5), 0));
  EXPECT_EQ(PriorityOf(order, kPush, Step(5), 9), PriorityOf(order, kPush, Step(5), 0));
  EXPECT_LT(PriorityOf(order, Leg::kResult, Step(5), 0),
            PriorityOf(order, Leg::kResult, Step(5), 1));
  EXPECT_LT(PriorityOf(order, Leg::kResult, Step(4), 9), PriorityOf(order, kPush, Step(5), 0));
}

TEST(Order, NamesComeBack) {
  for (const Order order :
       {Order::kNextForward, Order::kArrival, Order::kLayer, Order::kTwoPhase}) {
    EXPECT_EQ(ParseOrder(NameOf(order)), order);
  }
  EXPECT_FALSE(ParseOrder("random"));
}

}  // namespace
}  // namespace poseidon::messaging
