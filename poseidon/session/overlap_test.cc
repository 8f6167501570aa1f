// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/overlap.h"

#include <gtest/gtest.h>

#include <vector>

namespace poseidon::session {
namespace {

TEST(OverlapMeter, WaitingForASlowerWorkerIsNoCommunication) {
  OverlapMeter meter;
  // This worker computes 60 ms and waits 40 ms, because another computes 95 ms: 5 ms are bytes.
  // Layers were on their way for 85 ms, 35 of which were waiting for the other: 45 of 50 are hidden.
  meter.AddStep({.waited = 0.040, .seconds = 0.100, .busy = 0.085}, {0.060, 0.095});
  EXPECT_NEAR(meter.exposed(), 0.005, 1e-12);
  EXPECT_NEAR(meter.skew(), 0.035, 1e-12);
  EXPECT_NEAR(meter.hidden_share(), 0.9, 1e-9);
}

TEST(OverlapMeter, KnowsHowLongEachWorkerComputed) {
  OverlapMeter meter;
  EXPECT_TRUE(meter.computed().empty());
  meter.AddStep({.waited = 2, .seconds = 3, .busy = 1}, {1, 3, 2}, {1, 1, 0});
  const OverlapMeter before = meter;
  meter.AddStep({.waited = 0, .seconds = 4, .busy = 1}, {4, 1, 2}, {2, 0.5, 0});
  EXPECT_EQ(meter.computed(), (std::vector<double>{5, 4, 4}));
  EXPECT_EQ(meter.Since(before).computed(), (std::vector<double>{4, 1, 2}));
  EXPECT_EQ(meter.on_device(), (std::vector<double>{3, 1.5, 0}));
  EXPECT_EQ(meter.Since(before).on_device(), (std::vector<double>{2, 0.5, 0}));
  OverlapMeter models;  // of which none has ended a step
  EXPECT_EQ(models.Since(OverlapMeter()).computed(), std::vector<double>());
  models.Add(meter);
  models.Add(before);
  EXPECT_EQ(models.computed(), (std::vector<double>{6, 7, 6}));
}

TEST(OverlapMeter, NothingIsHiddenWhereComputingStandsStill) {
  OverlapMeter meter;
  meter.AddStep({.waited = 0.050, .seconds = 0.100, .busy = 0.050}, {0.050});
  EXPECT_NEAR(meter.hidden_share(), 0, 1e-9);
  meter.AddStep({.waited = 0.000, .seconds = 0.050, .busy = 0.050}, {0.050});
  EXPECT_NEAR(meter.hidden_share(), 0.5, 1e-9);
}

TEST(OverlapMeter, UnequalBeginningsEvenOut) {
  OverlapMeter meter;
  for (int step = 0; step < 100; ++step) {
    const double jitter = step % 2 == 0 ? 0.004 : -0.004;
    meter.AddStep({.waited = 0.020 + jitter, .seconds = 0.100 + jitter, .busy = 0.030}, {0.100});
  }
  EXPECT_EQ(meter.steps(), 100u);
  EXPECT_NEAR(meter.exposed(), 0, 1e-9);
  EXPECT_NEAR(meter.hidden_share(), 1, 1e-9);
}

TEST(OverlapMeter, AllIsHiddenWhereNothingWasSent) {
  EXPECT_EQ(OverlapMeter().hidden_share(), 1);
  OverlapMeter meter;
  meter.AddStep({.waited = 0, .seconds = 0.1, .busy = 0}, {0.1});
  EXPECT_EQ(meter.hidden_share(), 1);
  meter.AddStep({.waited = 0, .seconds = 0.1, .busy = 0.001}, {0.1});
  EXPECT_EQ(meter.hidden_share(), 1);
}

}  // namespace
}  // namespace poseidon::session
