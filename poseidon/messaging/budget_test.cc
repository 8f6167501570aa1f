// SPDX-License-Identifier: Apache-2.0
#include "poseidon/messaging/budget.h"

#include <gtest/gtest.h>

namespace poseidon::messaging {
namespace {

TEST(PacesWithin, AllConnectionsTogetherCarryThePayload) {
  for (const std::size_t peers : {1u, 3u, 63u}) {
    for (const std::size_t lanes : {1u, 4u}) {
      const Paces paces = PacesWithin(50e6, {.all = peers, .with_layers = peers}, lanes);
      EXPECT_DOUBLE_EQ(paces.layers * static_cast<double>(peers * lanes), 50e6);
      EXPECT_EQ(paces.others, paces.layers);
    }
  }
}

TEST(PacesWithin, ALeaderLeavesLittleForThoseItExchangesNoLayersWith) {
  // Two hosts of four workers.
  const Connections connections{.all = 7, .with_layers = 1};
  const Paces paces = PacesWithin(50e6, connections, 2);
  EXPECT_DOUBLE_EQ(paces.layers, 22.5e6);
  EXPECT_LE(2 * paces.layers + 6 * paces.others, 50e6);
  EXPECT_LE(7 * paces.others, 50e6) << "a follower, or a leader that hears followers alone";
  EXPECT_DOUBLE_EQ(LayersWithin(50e6, connections), 45e6);
  EXPECT_DOUBLE_EQ(LayersWithin(50e6, {.all = 7, .with_layers = 7}), 50e6);
  EXPECT_EQ(PacesWithin(70e6, {.all = 7, .with_layers = 0}, 1), (Paces{0, 10e6})) << "one host";
}

TEST(PayloadWithin, LeavesRoomForHeadersAndAcknowledgements) {
  const double payload = PayloadWithin(50e6);
  const double segments = payload / 1448;
  EXPECT_LT(segments * 1514 + segments / 2 * 66, 0.98 * 50e6);
  EXPECT_GT(payload, 0.9 * 50e6);
}

}  // namespace
}  // namespace poseidon::messaging
