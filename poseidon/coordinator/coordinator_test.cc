// SPDX-License-Identifier: Apache-2.0
// That it counts members, not messages. What it decides is tested where that is decided: membership_test.cc,
// agreement_test.cc, and by whole jobs.
#include "poseidon/coordinator/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "poseidon/sim/resident.h"

namespace poseidon::coordinator {
namespace {

class Port final : public CoordinatorPort {
 public:
  void SendToMember(MemberId member, const wire::Message& message) override {
    sent.emplace_back(member, message);
  }
  void SendToJoiner(ConnectionId, const wire::Message& message) override {
    if (std::holds_alternative<wire::Refuse>(message)) ++refused;
  }
  void AdmitJoiner(ConnectionId, MemberId) override {}
  void DismissJoiner(ConnectionId) override {}
  void SendToStrangers(const wire::Message&) override {}
  void OnVerdict(const AbortAll&) override {}

  template <typename Kind>
  int CountOf() const {
    int count = 0;
    for (const auto& [member, message] : sent) count += std::holds_alternative<Kind>(message);
    return count;
  }
  std::vector<std::pair<MemberId, wire::Message>> sent;
  int refused = 0;
};

class CoordinatorTest : public ::testing::Test {
 protected:
  static CoordinatorOptions Options() {
    CoordinatorOptions options;
    options.membership.workers = 2;
    return options;
  }
  static wire::Declare Layers() {
    wire::Declare declare;
    declare.layers = {{.name = "a", .elements = 10}};
    declare.product_hashes = {0};
    return declare;
  }
  Status Say(std::uint16_t member, const wire::Message& message) {
    return coordinator_->OnMessage(MemberId(member), message);
  }

  NullLogSink log_;
  Port port_;
  sim::Simulation simulation_{sim::SimulationOptions{}};
  const std::unique_ptr<Executor> io_ = simulation_.MakeExecutor(simulation_.AddProcess("host"));
  sim::Resident<Coordinator> coordinator_{simulation_, *io_, *io_, port_, log_, Options()};
};

TEST_F(CoordinatorTest, WhoJoinsTwiceOnOneConnectionTakesOnePlaceAtMost) {
  coordinator_->OnJoin(ConnectionId(1), {}, false);
  coordinator_->OnJoin(ConnectionId(1), {}, false);
  EXPECT_EQ(port_.refused, 1);
  coordinator_->OnJoin(ConnectionId(0), {}, true);
  EXPECT_EQ(port_.CountOf<wire::Welcome>(), 0);
}

TEST_F(CoordinatorTest, MembersAreCountedNotMessages) {
  coordinator_->OnJoin(ConnectionId(0), {}, true);
  coordinator_->OnJoin(ConnectionId(1), {}, false);
  ASSERT_EQ(port_.CountOf<wire::Welcome>(), 2);
  for (const wire::Stage stage : {wire::Stage::kConnected, wire::Stage::kMeasured}) {
    const int before = port_.CountOf<wire::AllReached>();
    EXPECT_TRUE(Say(1, wire::Reached{stage, {}}).ok());
    EXPECT_TRUE(Say(1, wire::Reached{stage, {}}).ok());
    EXPECT_EQ(port_.CountOf<wire::AllReached>(), before);
    EXPECT_TRUE(Say(0, wire::Reached{stage, {}}).ok());
    EXPECT_EQ(port_.CountOf<wire::AllReached>(), before + 2);
  }

  const wire::Reached declared{wire::Stage::kDeclared, ModelId(0)};
  EXPECT_EQ(Say(1, declared).code(), StatusCode::kDataLoss) << "nothing is agreed on";
  EXPECT_TRUE(Say(1, Layers()).ok());
  EXPECT_TRUE(Say(1, Layers()).ok());
  EXPECT_EQ(port_.CountOf<wire::Agreed>(), 0);
  EXPECT_TRUE(Say(0, Layers()).ok());
  EXPECT_EQ(port_.CountOf<wire::Agreed>(), 2);
  EXPECT_EQ(Say(1, Layers()).code(), StatusCode::kDataLoss);
  EXPECT_EQ(port_.CountOf<wire::Agreed>(), 2) << "a second one would pass for the final plan";

  EXPECT_TRUE(Say(1, declared).ok());
  EXPECT_EQ(Say(1, declared).code(), StatusCode::kDataLoss);
  EXPECT_EQ(port_.CountOf<wire::AllReached>(), 4);
  EXPECT_TRUE(Say(0, declared).ok());
  EXPECT_EQ(port_.CountOf<wire::AllReached>(), 6);
}

#ifdef POSEIDON_THREAD_CHECKS
using CoordinatorDeathTest = CoordinatorTest;

TEST_F(CoordinatorDeathTest, EveryEntryWantsATaskOfItsExecutor) {
  Coordinator outside(*io_, port_, log_, Options());
  EXPECT_DEATH(outside.OnJoin(ConnectionId(1), {}, false), "Coordinator::OnJoin.* outside a task of its executor");
  EXPECT_DEATH(outside.OnJoinerLost(ConnectionId(1), "ended"), "Coordinator::OnJoinerLost.* outside a task");
  EXPECT_DEATH(outside.OnSlowStart(Duration{0}), "Coordinator::OnSlowStart.* outside a task");
  EXPECT_DEATH(static_cast<void>(outside.OnMessage(MemberId(0), Layers())), "Coordinator::OnMessage.* outside a task");
  EXPECT_DEATH(outside.OnHeard(MemberId(0)), "Coordinator::OnHeard.* outside a task");
  EXPECT_DEATH(outside.OnLost(MemberId(1), MemberId(0), {}), "Coordinator::OnLost.* outside a task");
  EXPECT_DEATH(outside.OnOwnAbort(Unavailable("over")), "Coordinator::OnOwnAbort.* outside a task");
}
#endif

}  // namespace
}  // namespace poseidon::coordinator
