// SPDX-License-Identifier: Apache-2.0
// A member with a coordinator that is silent, or sends what no coordinator sends; on virtual time.
#include "poseidon/session/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/wire/messages.h"
#include "tests/integration/world.h"

namespace poseidon::integration {
namespace {

using ::testing::HasSubstr;

// Takes joins, and answers each with the same message, or with none.
class FalseCoordinator final : public messaging::MeshObserver {
 public:
  FalseCoordinator(World& world, std::optional<wire::Message> answer)
      : world_(world), answer_(std::move(answer)), site_(world.MakeSite("coordinator")) {
    world_.RunOn(io(), [this] {
      mesh_ = std::make_unique<messaging::Mesh>(io(), messaging::MeshOptions{}, *this);
      auto listener = site_->runtime().context().Listen(
          site_->listen(), [this](std::unique_ptr<transport::Connection> connection) {
            mesh_->AddStranger(std::move(connection));
          });
      ASSERT_TRUE(listener.ok());
      listener_ = *std::move(listener);
    });
  }
  ~FalseCoordinator() override {
    world_.RunOn(io(), [this] {
      listener_.reset();
      mesh_.reset();
    });
  }
  const transport::Address& address() const { return listener_->address(); }

 private:
  Executor& io() { return site_->runtime().io(); }
  Status OnControl(MemberId, ConstBytes) override { return OkStatus(); }
  Status OnIntroduction(const std::shared_ptr<messaging::Channel>& joiner, ConstBytes) override {
    if (answer_) mesh_->SendControl(*joiner, wire::Encode(*answer_));
    return OkStatus();
  }
  void OnPeerClosed(MemberId, const Status&) override {}
  void OnStrangerClosed(const messaging::Channel&, const Status&) override {}

  World& world_;
  const std::optional<wire::Message> answer_;
  const std::unique_ptr<Site> site_;
  std::unique_ptr<messaging::Mesh> mesh_;
  std::unique_ptr<transport::Listener> listener_;
};

// How the start of a worker ends that joins there.
Status StartAt(World& world, const transport::Address& coordinator) {
  NullLogSink log;
  const auto site = world.MakeSite("worker");
  session::Runtime& runtime = site->runtime();
  std::unique_ptr<session::Node> node;
  Status started;
  Tally done;
  world.RunOn(runtime.io(), [&] {
    session::NodeOptions options;
    options.workers = 2;
    options.listen = site->listen();
    options.coordinator = coordinator;
    options.join_timeout = std::chrono::seconds(5);
    node = std::make_unique<session::Node>(
        session::NodeEnvironment{.io = runtime.io(),
                                 .compute = runtime.compute(),
                                 .completions = runtime.completions(),
                                 .context = runtime.context(),
                                 .log = log},
        options, [](const Status&) {});
    ASSERT_TRUE(node->Listen().ok());
    node->Start([&](Status status) {
      started = std::move(status);
      done.Add();
    });
  });
  EXPECT_TRUE(world.Await(done, 1));
  world.RunOn(runtime.io(), [&] { node.reset(); });
  return started;
}

wire::RosterEntry Entry(std::uint16_t member, std::uint16_t rank,
                        wire::Role role = wire::Role::kWorker) {
  return {.member = MemberId(member), .role = role, .rank = Rank(rank), .host = "h",
          .listen_host = "h", .listen_port = 1, .machine = ""};
}

TEST(Node, ACoordinatorThatNeverAnswersIsNotWaitedForWithoutEnd) {
  VirtualWorld world{VirtualOptions{}};
  const FalseCoordinator silent(world, std::nullopt);
  const Status status = StartAt(world, silent.address());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.culprit(), 0);
  EXPECT_THAT(status.message(), HasSubstr("rank 0 at " + silent.address().ToString() + " has been silent for"));
}

TEST(Node, ARosterThatIsNoJobsEndsTheStart) {
  using Roster = std::vector<wire::RosterEntry>;
  const auto server = wire::Role::kServer;
  const std::vector<std::pair<std::uint16_t, Roster>> welcomes = {
      {0, {Entry(0, 0), Entry(1, 1)}},             // the coordinator's own place
      {1, {Entry(0, 0), Entry(4000, 1)}},          // a member that is none
      {1, {Entry(0, 0), Entry(1, 70)}},            // a rank that is none
      {1, {Entry(0, 0), Entry(1, 0, server)}},     // another role than this member's
      {2, {Entry(0, 0), Entry(1, 0, server), Entry(2, 2)}},
  };
  for (const auto& [member, roster] : welcomes) {
    VirtualWorld world{VirtualOptions{}};
    const FalseCoordinator liar(world, wire::Welcome{Generation(1), MemberId(member), roster});
    const Status status = StartAt(world, liar.address());
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("sent a roster that is no job's"));
  }
}

}  // namespace
}  // namespace poseidon::integration
