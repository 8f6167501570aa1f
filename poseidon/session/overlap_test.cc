// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/overlap.h"

#include <gtest/gtest.h>

namespace poseidon::session {
namespace {

TEST(OverlapMeter, WaitingForASlowerWorkerIsNoCommunication) {
  OverlapMeter meter;
  // This worker computes 60 ms and waits 40 ms, because another computes 95 ms: 5 ms are bytes.
  meter.AddStep(0.100, 0.040, 0.095);
  EXPECT_NEAR(meter.exposed(), 0.005, 1e-12);
  EXPECT_NEAR(meter.skew(), 0.035, 1e-12);
  // Layers were on their way for 85 ms, 35 of which were waiting for the other: 45 of 50 are hidden.
  EXPECT_NEAR(meter.hidden_share(0.085), 0.9, 1e-9);
}

TEST(OverlapMeter, NothingIsHiddenWhereComputingStandsStill) {
  OverlapMeter meter;
  meter.AddStep(0.100, 0.050, 0.050);
  EXPECT_NEAR(meter.hidden_share(0.050), 0, 1e-9);
  EXPECT_NEAR(meter.hidden_share(0.100), 0.5, 1e-9);
}

TEST(OverlapMeter, UnequalBeginningsEvenOut) {
  OverlapMeter meter;
  for (int step = 0; step < 100; ++step) {
    const double jitter = step % 2 == 0 ? 0.004 : -0.004;
    meter.AddStep(0.100 + jitter, 0.020 + jitter, 0.100);
  }
  EXPECT_EQ(meter.steps(), 100u);
  EXPECT_NEAR(meter.exposed(), 0, 1e-9);
  EXPECT_NEAR(meter.hidden_share(3.0), 1, 1e-9);
}

TEST(OverlapMeter, AllIsHiddenWhereNothingWasSent) {
  EXPECT_EQ(OverlapMeter().hidden_share(0), 1);
  OverlapMeter meter;
  meter.AddStep(0.1, 0, 0.1);
  EXPECT_EQ(meter.hidden_share(0.001), 1);
}

}  // namespace
}  // namespace poseidon::session
