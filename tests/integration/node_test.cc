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

// A worker of a job of two that listens and starts when it is made. Joins at `coordinator`, or hosts it where none is given.
class Starting {
 public:
  Starting(World& world, const std::optional<transport::Address>& coordinator)
      : world_(world), site_(world.MakeSite("worker")) {
    session::Runtime& runtime = site_->runtime();
    world_.RunOn(runtime.io(), [&] {
      session::NodeOptions options;
      options.workers = 2;
      options.listen = site_->listen();
      options.hosts_coordinator = !coordinator;
      if (coordinator) options.coordinator = *coordinator;
      options.join_timeout = std::chrono::seconds(5);
      node_ = std::make_unique<session::Node>(
          session::NodeEnvironment{.io = runtime.io(),
                                   .compute = runtime.compute(),
                                   .completions = runtime.completions(),
                                   .context = runtime.context(),
                                   .log = log_},
          options, [](const Status&) {});
      ASSERT_TRUE(node_->Listen().ok());
      address_ = node_->address();
      node_->Start([this](Status status) {
        started_ = std::move(status);
        done_.Add();
      });
    });
  }
  ~Starting() {
    world_.RunOn(site_->runtime().io(), [this] { node_.reset(); });
  }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

  const transport::Address& address() const { return address_; }
  // Waits for the start to end, and returns how.
  const Status& Ended() {
    EXPECT_TRUE(world_.Await(done_, 1));
    return started_;
  }

 private:
  World& world_;
  NullLogSink log_;
  const std::unique_ptr<Site> site_;
  std::unique_ptr<session::Node> node_;
  transport::Address address_;
  Status started_;
  Tally done_;
};

// How the start of a worker ends that joins there.
Status StartAt(World& world, const transport::Address& coordinator) { return Starting(world, coordinator).Ended(); }

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

// As long as a roster gets: it is read, and only then found to be no job's.
TEST(Node, TheLargestRosterIsRead) {
  const std::string longest(255, 'h');
  std::vector<wire::RosterEntry> roster;
  for (std::uint16_t i = 0; i < wire::kMaxMembers; ++i) {
    roster.push_back(Entry(i, i));
    roster.back().host = roster.back().listen_host = roster.back().machine = longest;
  }
  roster.back().rank = Rank(7);
  VirtualWorld world{VirtualOptions{}};
  const FalseCoordinator liar(world, wire::Welcome{Generation(1), MemberId(1), roster});
  EXPECT_THAT(StartAt(world, liar.address()).message(), HasSubstr("sent a roster that is no job's"));
}

// Joins as a worker, and says once it is welcome what only the coordinator may say.
class FalseMember final : public messaging::MeshObserver {
 public:
  FalseMember(World& world, const transport::Address& coordinator, wire::Message word)
      : world_(world), word_(std::move(word)), site_(world.MakeSite("false member")) {
    world_.RunOn(io(), [&] {
      mesh_ = std::make_unique<messaging::Mesh>(io(), messaging::MeshOptions{}, *this);
      site_->runtime().context().Connect(
          coordinator, std::chrono::seconds(5), [this](Result<std::unique_ptr<transport::Connection>> connection) {
            ASSERT_TRUE(connection.ok());
            const auto channel = mesh_->AddStranger(*std::move(connection));
            mesh_->SendControl(*channel, wire::Encode(wire::Join{.host = "b", .listen_host = "b", .listen_port = 1}));
          });
    });
  }
  ~FalseMember() override {
    world_.RunOn(io(), [this] { mesh_.reset(); });
  }

 private:
  Executor& io() { return site_->runtime().io(); }
  Status OnIntroduction(const std::shared_ptr<messaging::Channel>& coordinator, ConstBytes) override {
    EXPECT_TRUE(mesh_->Identify(coordinator, MemberId(0)));
    mesh_->SendControl(*coordinator, wire::Encode(word_));
    return OkStatus();
  }
  Status OnControl(MemberId, ConstBytes) override { return OkStatus(); }
  void OnPeerClosed(MemberId, const Status&) override {}
  void OnStrangerClosed(const messaging::Channel&, const Status&) override {}

  World& world_;
  const wire::Message word_;
  const std::unique_ptr<Site> site_;
  std::unique_ptr<messaging::Mesh> mesh_;
};

TEST(Node, AMemberThatSpeaksForTheCoordinatorIsNamed) {
  VirtualWorld world{VirtualOptions{}};
  Starting worker(world, std::nullopt);
  const FalseMember liar(world, worker.address(), wire::AllReached{wire::Stage::kConnected, {}});
  const Status& started = worker.Ended();
  EXPECT_EQ(started.culprit(), 1);
  EXPECT_THAT(started.message(), HasSubstr("worker 1 on host b: only the coordinator says that all have come so far"));
}

}  // namespace
}  // namespace poseidon::integration
