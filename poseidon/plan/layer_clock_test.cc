// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/layer_clock.h"

#include <gtest/gtest.h>

#include <chrono>

namespace poseidon::plan {
namespace {

TEST(LayerClock, GivesMeansOfTheLastIterationsWithoutTheFirst) {
  LayerClock clock(1);
  for (const int milliseconds : {900, 5, 4, 8, 6, 7}) {
    clock.AddForward(0, std::chrono::milliseconds(milliseconds));
    clock.AddBackward(0, std::chrono::milliseconds(2 * milliseconds));
    clock.EndIteration();
  }
  EXPECT_EQ(clock.iterations(), 5);
  EXPECT_DOUBLE_EQ(clock.Means()[0].forward, 0.006);
  EXPECT_DOUBLE_EQ(clock.Means()[0].backward, 0.012);
}

TEST(LayerClock, OfManyIterationsKeepsTheLast) {
  LayerClock clock(1);
  for (int i = 1; i <= 30; ++i) {
    clock.AddForward(0, std::chrono::milliseconds(i));
    clock.EndIteration();
    if (i < 10) continue;
    EXPECT_NEAR(clock.Means()[0].forward, 0.001 * (i - 4), 1e-12) << "the mean of i - 8 to i, i = " << i;
  }
}

}  // namespace
}  // namespace poseidon::plan
