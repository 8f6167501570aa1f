// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "poseidon/messaging/test_link.h"
#include "poseidon/messaging/test_observer.h"
#include "poseidon/sim/resident.h"

namespace poseidon::kv {
namespace {

// The client of the first of two workers, on a mesh without connections.
struct World {
  explicit World(const std::vector<MemberId>& owners)
      : client(simulation, *io, *io, mesh,
               sync::Topology{.self = MemberId(0),
                              .self_rank = Rank(0),
                              .worker_of_rank = {MemberId(0), MemberId(1)},
                              .owner_of_shard = owners},
               nullptr) {}

  sim::Simulation simulation{sim::SimulationOptions{}};
  std::unique_ptr<Executor> io = simulation.MakeExecutor(simulation.AddProcess("worker"));
  messaging::testing::Nobody nobody;
  messaging::Mesh mesh{*io, {}, nobody};
  sim::Resident<Client> client;
};

// A frame without bytes comes without PlaceFor, and what takes it counts it for its layer.
TEST(Client, AResultThatNobodyWaitsForIsRefusedAlsoWithoutBytes) {
  World world({MemberId(0), MemberId(1)});
  sim::Resident<Client>& client = world.client;
  wire::FrameHeader header;
  header.type = wire::FrameType::kResult;
  header.layer = LayerId(0xffffffff);
  EXPECT_EQ(client->OnFrame(MemberId(1), header, {}).code(), StatusCode::kDataLoss);
  EXPECT_EQ(client->PlaceFor(MemberId(1), header).status().code(), StatusCode::kDataLoss);
  client->Abandon(Unavailable("the job has ended"));
  EXPECT_TRUE(client->OnFrame(MemberId(1), header, {}).ok()) << "what was under way may still come";
}

// The headers that come out at the other end of the client's connection.
class Pushed final : public messaging::FrameSink {
 public:
  Result<MutableBytes> PlaceFor(MemberId, const wire::FrameHeader&) override { return MutableBytes{}; }
  Status OnFrame(MemberId, const wire::FrameHeader& header, ConstBytes) override {
    headers.push_back(header);
    return OkStatus();
  }
  // Bytes of each frame since the last call, those of frames behind which more is held back as negative numbers.
  std::vector<std::int64_t> Taken() {
    std::vector<std::int64_t> taken;
    for (const wire::FrameHeader& header : std::exchange(headers, {})) {
      const std::int64_t bytes = header.length;
      taken.push_back((header.flags & wire::kFlagHeld) != 0 ? -bytes : bytes);
    }
    return taken;
  }
  std::vector<wire::FrameHeader> headers;
};

// Worker 0 on the left pushes a layer of 1,000 bytes, all of it worker 1's on the right.
class ClientWindow : public ::testing::Test {
 protected:
  void Make(std::size_t window) {
    link_.Connect();
    link_.OnRight([&] {
      right_ = std::make_unique<messaging::Mesh>(link_.right(), messaging::MeshOptions{}, nobody_);
      right_->Route(wire::FrameType::kPush, pushed_);
      ASSERT_TRUE(right_->Identify(right_->AddStranger(link_.TakeRight()), MemberId(0)));
    });
    link_.OnLeft([&] {
      left_ = std::make_unique<messaging::Mesh>(link_.left(), messaging::MeshOptions{.flow = {.window_bytes = window}}, nobody_);
      ASSERT_TRUE(left_->Identify(left_->AddStranger(link_.TakeLeft()), MemberId(1)));
      client_ = std::make_unique<Client>(link_.left(), *left_,
                                         sync::Topology{.self = MemberId(0),
                                                        .self_rank = Rank(0),
                                                        .worker_of_rank = {MemberId(0), MemberId(1)},
                                                        .owner_of_shard = {MemberId(1)}},
                                         nullptr);
      client_->Declare(ModelId(0), {{{.shard = 0, .first = 0, .count = 250}}});
    });
  }
  ~ClientWindow() override {
    link_.OnLeft([&] {
      client_.reset();
      left_.reset();
    });
    link_.OnRight([&] { right_.reset(); });
    link_.Run();
  }
  void Push(bool in_parts = false) {
    link_.OnLeft([&] {
      sync::SyncRequest request;
      request.step = Step(3);
      request.gradient = ViewOf(gradient_);
      request.in_parts = in_parts;
      request.done = [this](const Status& status) { done_.push_back(status.code()); };
      client_->PushPull(kKey, std::move(request));
    });
    link_.Run();
  }
  // A frame of the owner's, as the mesh hands it on.
  Status Comes(wire::FrameType type, std::uint64_t offset, std::uint32_t length, MemberId from = MemberId(1)) {
    wire::FrameHeader header;
    header.type = type;
    header.step = Step(3);
    header.offset = offset;
    header.length = length;
    header.total = 1000;
    Status status;
    link_.OnLeft([&] {
      if (length > 0) status = client_->PlaceFor(from, header).status();
      if (status.ok()) status = client_->OnFrame(from, header, {});
    });
    link_.Run();
    return status;
  }

  static constexpr Key kKey{ModelId(0), LayerId(0)};
  messaging::testing::TestLink link_{64 << 10};
  messaging::testing::Nobody nobody_;
  Pushed pushed_;
  std::unique_ptr<messaging::Mesh> left_;
  std::unique_ptr<messaging::Mesh> right_;
  std::unique_ptr<Client> client_;
  std::vector<float> gradient_ = std::vector<float>(250);
  std::vector<StatusCode> done_;
};

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using wire::FrameType;

TEST_F(ClientWindow, SumsLetAContributionGoOn) {
  Make(402);
  Push();
  EXPECT_THAT(pushed_.Taken(), ElementsAre(-400)) << "whole numbers";
  EXPECT_TRUE(Comes(FrameType::kResult, 0, 100).ok());
  EXPECT_THAT(pushed_.Taken(), IsEmpty()) << "not in small pieces";
  EXPECT_TRUE(Comes(FrameType::kResult, 100, 100).ok());
  EXPECT_THAT(pushed_.Taken(), ElementsAre(-200));
  EXPECT_TRUE(Comes(FrameType::kResult, 200, 10).ok());
  EXPECT_THAT(pushed_.Taken(), IsEmpty());
  EXPECT_TRUE(Comes(FrameType::kResult, 210, 400).ok());
  EXPECT_THAT(pushed_.Taken(), ElementsAre(400)) << "the end";
  EXPECT_TRUE(Comes(FrameType::kResult, 610, 390).ok());
  EXPECT_EQ(done_, std::vector<StatusCode>{StatusCode::kOk});
}

TEST_F(ClientWindow, GrantsLetItGoOnWithoutSums) {
  Make(400);
  Push();
  EXPECT_THAT(pushed_.Taken(), ElementsAre(-400));
  EXPECT_TRUE(Comes(FrameType::kGrant, 900, 0).ok());
  EXPECT_THAT(pushed_.Taken(), ElementsAre(-500));
  EXPECT_TRUE(Comes(FrameType::kResult, 0, 500).ok()) << "which says less than the grant";
  EXPECT_THAT(pushed_.Taken(), IsEmpty());
  EXPECT_TRUE(Comes(FrameType::kGrant, 960, 0).ok());
  EXPECT_THAT(pushed_.Taken(), ElementsAre(-60)) << "however little";
}

TEST_F(ClientWindow, AGrantThatFitsNothingIsRefused) {
  Make(400);
  EXPECT_EQ(Comes(FrameType::kGrant, 900, 0).code(), StatusCode::kDataLoss) << "nothing is pushed";
  Push();
  EXPECT_EQ(Comes(FrameType::kGrant, 0, 0).code(), StatusCode::kDataLoss);
  EXPECT_EQ(Comes(FrameType::kGrant, 900, 100).code(), StatusCode::kDataLoss) << "it has bytes";
  EXPECT_EQ(Comes(FrameType::kGrant, 900, 0, MemberId(2)).code(), StatusCode::kDataLoss) << "of another's slice";
  EXPECT_THAT(pushed_.Taken(), ElementsAre(-400));
}

TEST_F(ClientWindow, WithoutAWindowAllLeaves) {
  Make(0);
  Push();
  EXPECT_THAT(pushed_.Taken(), ElementsAre(1000));
}

TEST_F(ClientWindow, WhatIsNotThereYetIsNotHeldBack) {
  Make(400);
  Push(/*in_parts=*/true);
  const auto arrives = [&](std::uint64_t elements) {
    link_.OnLeft([&] { client_->Arrived(kKey, elements); });
    link_.Run();
    return pushed_.Taken();
  };
  EXPECT_THAT(arrives(10), ElementsAre(40));
  EXPECT_THAT(arrives(100), ElementsAre(360));
  EXPECT_THAT(arrives(120), IsEmpty());
  EXPECT_TRUE(Comes(FrameType::kResult, 0, 400).ok());
  EXPECT_THAT(pushed_.Taken(), ElementsAre(80));
}

// The program still writes what has not arrived.
TEST(Client, AResultLandsOnlyOverWhatHasArrived) {
  World world({MemberId(1)});
  sim::Resident<Client>& client = world.client;
  client->Declare(ModelId(0), {{{.shard = 0, .first = 0, .count = 100}}});
  std::vector<float> gradient(100);
  std::vector<StatusCode> done;
  sync::SyncRequest request;
  request.gradient = ViewOf(gradient);
  request.in_parts = true;
  request.done = [&](const Status& status) { done.push_back(status.code()); };
  const Key key{ModelId(0), LayerId(0)};
  client->PushPull(key, std::move(request));

  wire::FrameHeader header;
  header.type = wire::FrameType::kResult;
  header.total = 400;
  header.length = 160;
  const Status early = client->PlaceFor(MemberId(1), header).status();
  EXPECT_EQ(early.code(), StatusCode::kDataLoss);
  EXPECT_EQ(early.message(), "a result for layer 0 came before this worker's contribution to it");
  client->Arrived(key, 39);
  EXPECT_FALSE(client->PlaceFor(MemberId(1), header).ok());
  client->Arrived(key, 40);
  ASSERT_TRUE(client->PlaceFor(MemberId(1), header).ok());
  EXPECT_EQ(client->PlaceFor(MemberId(1), header)->data(), ViewOf(gradient).memory);

  // Nobody owes the mean while this worker owes its contribution.
  std::vector<wire::Wait> waits;
  client->AddWaits(&waits);
  EXPECT_TRUE(waits.empty());
  client->Arrived(key, 100);
  client->AddWaits(&waits);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].on, std::vector<MemberId>{MemberId(1)});
  world.simulation.Run();
  EXPECT_TRUE(done.empty());
  client->Abandon(Unavailable("the job has ended"));
  client->Arrived(key, 100);
  world.simulation.Run();
  EXPECT_EQ(done, std::vector<StatusCode>{StatusCode::kUnavailable});
}

}  // namespace
}  // namespace poseidon::kv
