// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/loss_watch.h"

#include <gtest/gtest.h>

namespace poseidon::transport::tcp {
namespace {

constexpr std::uint64_t kStretch = 512 * 1448;

TEST(LossWatch, LooksWhenEnoughWasSent) {
  LossWatch watch;
  EXPECT_FALSE(watch.Due(kStretch - 1));
  ASSERT_TRUE(watch.Due(kStretch));
  watch.Look(kStretch, 1448, 0);
  EXPECT_FALSE(watch.Due(2 * kStretch - 1));
  EXPECT_TRUE(watch.Due(2 * kStretch));
}

TEST(LossWatch, TwoOfAThousandAreTooMany) {
  LossWatch watch;
  EXPECT_FALSE(watch.Look(4 * kStretch, 1448, 4));
  EXPECT_FALSE(watch.Look(8 * kStretch, 1448, 4)) << "those of the first stretch do not count again";
  EXPECT_TRUE(watch.Look(12 * kStretch, 1448, 4 + 5));
}

TEST(LossWatch, AFewLossesAreNoOverflow) {
  LossWatch watch;
  EXPECT_FALSE(watch.Look(kStretch, 65'483, 2)) << "2 of 11 segments of loopback";
}

TEST(LossWatch, FewerThanBeforeAreNone) {
  LossWatch watch;
  EXPECT_TRUE(watch.Look(kStretch, 1448, 5));
  EXPECT_FALSE(watch.Look(2 * kStretch, 1448, 4)) << "a late report says that one of them was there already";
}

}  // namespace
}  // namespace poseidon::transport::tcp
