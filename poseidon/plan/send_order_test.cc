// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/send_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "poseidon/plan/planner.h"
#include "poseidon/plan/test_chain.h"

namespace poseidon::plan {
namespace {

using ::testing::ElementsAre;

std::vector<std::uint32_t> ForwardOrder(std::size_t layers) {
  std::vector<std::uint32_t> places(layers);
  std::iota(places.begin(), places.end(), 0u);
  return places;
}

TEST(PlayedStepSeconds, IsTheLeastPossibleWithoutRebuilds) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 2000; ++i) {
    const auto chain = RandomChain(random, false);
    const double played = PlayedStepSeconds(chain, ForwardOrder(chain.size()));
    ASSERT_NEAR(played / LeastStepSeconds(chain), 1, 1e-9) << "chain " << i;
    EXPECT_EQ(SendOrder(chain), ForwardOrder(chain.size()));
  }
}

// Worked out by hand, seconds: backward 2 to 0 until 6; the link serves layer 1 from 2 to 4, layer 0 to 14
// because it preempts, layer 1 again to 22. Rebuilt until 27, then forward of layer 1 and 2.
TEST(PlayedStepSeconds, PlaysByPlaces) {
  const std::vector<LayerCost> chain = {{.forward = 1, .backward = 2, .transfer = 10},
                                        {.forward = 1, .backward = 2, .transfer = 10, .rebuild = 5},
                                        {.forward = 1, .backward = 0}};
  // Layer 1 leaves at 2; layer 0 is ready at 4.
  EXPECT_DOUBLE_EQ(PlayedStepSeconds(chain, std::vector<std::uint32_t>{0, 1, 2}), 22 + 5 + 1 + 1);
  // Layer 1 has the link until 12 and is rebuilt until 17; layer 0 lands at 22.
  EXPECT_DOUBLE_EQ(PlayedStepSeconds(chain, std::vector<std::uint32_t>{1, 0, 2}), 22 + 1 + 1 + 1);
}

// A perceptron of 784-4096-4096-10 on two workers at 100 Mbit/s, batch 64: the middle layer's rebuild and
// update are most of what is left when its factors have landed.
TEST(SendOrder, WhatIsRebuiltForLongLeavesFirst) {
  const std::vector<LayerCost> mlp = {
      {.forward = 0.013, .backward = 0.002, .transfer = 0.105, .rebuild = 0.010},
      {.forward = 0.060, .backward = 0.030, .transfer = 0.177, .rebuild = 0.050},
      {.forward = 0.002, .backward = 0.002, .transfer = 0.014}};
  const auto order = SendOrder(mlp);
  EXPECT_THAT(order, ElementsAre(1, 0, 2));
  EXPECT_LT(PlayedStepSeconds(mlp, order), 0.95 * PlayedStepSeconds(mlp, ForwardOrder(3)));
}

TEST(SendOrder, IsNeverWorseThanTheForwardOrderNorBetterThanTheBound) {
  std::mt19937_64 random(5);
  int moved = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto chain = RandomChain(random, true);
    auto places = SendOrder(chain);
    const double played = PlayedStepSeconds(chain, places);
    const double forward = PlayedStepSeconds(chain, ForwardOrder(chain.size()));
    ASSERT_LE(played, forward) << "chain " << i;
    ASSERT_GE(played, LeastStepSeconds(chain) * (1 - 1e-9)) << "chain " << i;
    if (places != ForwardOrder(chain.size())) {
      ++moved;
      EXPECT_LT(played, 0.99 * forward);
    }
    std::sort(places.begin(), places.end());
    EXPECT_EQ(places, ForwardOrder(chain.size())) << "every place once";
  }
  EXPECT_GT(moved, 30);
}

class LastOfBackwardTest : public ::testing::Test {
 protected:
  // Declared against the order of the forward pass: layer 3 runs first.
  LastOfBackwardTest() : layers_(4) {
    plan_.layers.resize(4);
    for (std::uint32_t i = 0; i < 4; ++i) {
      layers_[i].name = "layer" + std::to_string(i);
      layers_[i].elements = 1000;
      layers_[i].forward_position = 3 - i;
      plan_.layers[i].measured.forward_seconds = 0.010;
      plan_.layers[i].measured.backward_seconds = 0.010;
      plan_.layers[i].transfer_seconds = 0.010;
    }
    plan_.compute_seconds = 0.080;
  }
  std::vector<bool> Last(double seconds) const { return LastOfBackward(layers_, plan_, seconds); }

  std::vector<LayerSpec> layers_;
  Plan plan_;
};

TEST_F(LastOfBackwardTest, AreThoseWithLittleBehindThem) {
  EXPECT_THAT(Last(0), ElementsAre(false, false, false, true));
  EXPECT_THAT(Last(0.015), ElementsAre(false, false, true, true));
  EXPECT_THAT(Last(0.025), ElementsAre(false, true, true, true));
  EXPECT_THAT(Last(1), ElementsAre(true, true, true, true));
}

// The first layer's bytes are so many that the next one's window is as full: 0.08 + 0.03 seconds, and
// 0.06 + 0.05; that of the third, 0.04 + 0.06, is not.
TEST_F(LastOfBackwardTest, ReachBeyondLayersWhoseWindowsAreFull) {
  plan_.layers[3].transfer_seconds = 0.030;
  plan_.layers[2].transfer_seconds = 0.020;
  EXPECT_THAT(Last(0), ElementsAre(false, false, true, true));
  EXPECT_THAT(Last(0.015), ElementsAre(false, true, true, true));
}

TEST_F(LastOfBackwardTest, AreNoneWhereTheLinkHasMoreToDo) {
  plan_.compute_seconds = 0.038;  // a twentieth more
  EXPECT_THAT(Last(0.015), ElementsAre(false, false, true, true));
  plan_.compute_seconds = 0.035;
  EXPECT_THAT(Last(0.015), ElementsAre(false, false, false, false));
}

TEST_F(LastOfBackwardTest, AreNoneWhereNothingWasMeasured) {
  plan_ = ProvisionalPlan(layers_, {.workers = 2}, {}).value();
  EXPECT_THAT(Last(0.015), ElementsAre(false, false, false, false));
}

}  // namespace
}  // namespace poseidon::plan
