// SPDX-License-Identifier: Apache-2.0
// What the probe makes of its neighbour's reports. That they are true of a link is shown by whole jobs:
// tests/integration/core_test.cc.
#include "poseidon/session/link_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "poseidon/messaging/test_observer.h"
#include "poseidon/sim/resident.h"

namespace poseidon::session {
namespace {

using messaging::testing::Nobody;
using ::testing::ElementsAre;

// No connection: what the probe sends goes nowhere, and the test speaks for its neighbour.
class LinkProbeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    probe_->Run([this](LinkMeasurement link) { found_.push_back(link.bytes_per_second); },
               [this] { ++done_; });
    for (std::uint64_t token = 0; token < 5; ++token) probe_->OnEcho(kNext, {token, true});
    simulation_.RunFor(std::chrono::milliseconds(100));
  }
  void Report(std::vector<double> rates) {
    for (const double rate : rates) probe_->OnReport(kNext, {rate});
  }

  static constexpr MemberId kNext{1};
  sim::Simulation simulation_{sim::SimulationOptions{}};
  const std::unique_ptr<Executor> io_ = simulation_.MakeExecutor(simulation_.AddProcess("worker"));
  Nobody nobody_;
  messaging::Mesh mesh_{*io_, {}, nobody_};
  sim::Resident<LinkProbe> probe_{simulation_, *io_, *io_, mesh_, kNext, 1000u};
  std::vector<double> found_;
  int done_ = 0;
};

TEST_F(LinkProbeTest, AShortLinkIsKnownAfterFourRounds) {
  Report({60, 100, 98});
  EXPECT_EQ(done_, 0);
  Report({99});
  EXPECT_EQ(done_, 1);
  EXPECT_THAT(found_, ElementsAre(60, 100, 100, 99)) << "last the median of the last three";
}

TEST_F(LinkProbeTest, ItGoesOnWhileItGetsFaster) {
  Report({6, 12, 25, 50, 100});
  EXPECT_EQ(done_, 0);
  Report({125, 124, 125});
  EXPECT_EQ(done_, 1);
  EXPECT_EQ(found_.back(), 125);
}

// After a loss a round is slow at any link.
TEST_F(LinkProbeTest, OneSlowRoundNeitherEndsTheGrowthNorShrinksTheBuffers) {
  Report({6, 12, 3});
  EXPECT_EQ(found_.back(), 12) << "buffers stay as they were";
  Report({25, 50, 20, 100, 125});
  EXPECT_EQ(done_, 0);
  Report({124, 125});
  EXPECT_EQ(done_, 1);
  EXPECT_EQ(found_.back(), 125);
}

TEST_F(LinkProbeTest, ALinkThatGetsFasterForeverIsTakenAsItIs) {
  for (double rate = 1; done_ == 0 && rate < 1e12; rate *= 2) Report({rate});
  EXPECT_EQ(done_, 1);
  EXPECT_EQ(found_.size(), 24u);
}

TEST_F(LinkProbeTest, OnlyTheNeighbourReportsAndOncePerRound) {
  probe_->OnReport(MemberId(2), {1e9});
  EXPECT_TRUE(found_.empty());
  Report({100, 100, 100, 100});
  EXPECT_EQ(done_, 1);
  Report({5});
  EXPECT_EQ(done_, 1);
  EXPECT_EQ(found_.back(), 100);
}

TEST(LinkProbe, RepliesThatNobodyAskedForSendNothing) {
  sim::Simulation simulation{sim::SimulationOptions{}};
  const auto io = simulation.MakeExecutor(simulation.AddProcess("worker"));
  Nobody nobody;
  messaging::Mesh mesh(*io, {}, nobody);
  sim::Resident<LinkProbe> probe(simulation, *io, *io, mesh, MemberId(1), 1000u);
  int found = 0;
  probe->Run([&](LinkMeasurement) { ++found; }, [] {});
  for (int i = 0; i < 100; ++i) probe->OnEcho(MemberId(1), {7, true});
  simulation.RunFor(std::chrono::milliseconds(100));
  probe->OnReport(MemberId(1), {100});
  EXPECT_EQ(found, 0) << "no round is under way";
}

}  // namespace
}  // namespace poseidon::session
