// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/messaging/test_link.h"
#include "poseidon/messaging/test_observer.h"
#include "poseidon/sim/resident.h"

namespace poseidon::kv {
namespace {

using messaging::testing::Nobody;
using messaging::testing::TestLink;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Records the addresses of the results' first bytes in order of arrival.
class Results final : public messaging::FrameSink {
 public:
  Result<MutableBytes> PlaceFor(MemberId, const wire::FrameHeader&) override {
    return MutableBytes{};
  }
  Status OnFrame(MemberId, const wire::FrameHeader& header, ConstBytes) override {
    if (header.layer == LayerId(1)) offsets.push_back(header.offset);
    return OkStatus();
  }
  std::vector<std::uint64_t> offsets;
};

// Worker 0 with the only shard on the left, worker 1 on the right.
TEST(Server, APlanDoesNotReorderTheStretchesOfAResult) {
  constexpr Step kStep{4};
  constexpr std::uint64_t kStretch = 4000;
  const std::vector<plan::LayerSpec> layers = {
      {.name = "a", .elements = 1000}, {.name = "b", .elements = 4000, .forward_position = 1}};
  const std::vector<std::vector<plan::Slice>> slices = {
      {{.shard = 0, .first = 0, .count = 1000}}, {{.shard = 0, .first = 0, .count = 4000}}};
  plan::Plan plan;
  plan.layers = {{.layer = LayerId(0), .send_position = 0},
                 {.layer = LayerId(1), .send_position = 1}};

  TestLink link(1000);  // so that all but the first stretch have to queue
  Nobody nobody;
  Results results;
  std::unique_ptr<messaging::Mesh> left;
  std::unique_ptr<messaging::Mesh> right;
  std::unique_ptr<Server> server;
  std::vector<float> local(4000, 1);
  const std::vector<float> remote(4000, 2);
  link.Connect();
  link.OnRight([&] {
    right = std::make_unique<messaging::Mesh>(link.right(), messaging::MeshOptions{}, nobody);
    right->Route(wire::FrameType::kResult, results);
    ASSERT_TRUE(right->Identify(right->AddStranger(link.TakeRight()), MemberId(0)));
  });
  link.OnLeft([&] {
    left = std::make_unique<messaging::Mesh>(link.left(), messaging::MeshOptions{}, nobody);
    ASSERT_TRUE(left->Identify(left->AddStranger(link.TakeLeft()), MemberId(1)));
    server = std::make_unique<Server>(link.left(), *left,
                                      sync::Topology{.self = MemberId(0),
                                               .self_rank = Rank(0),
                                               .worker_of_rank = {MemberId(0), MemberId(1)},
                                               .owner_of_shard = {MemberId(0)}},
                                      nullptr);
    server->Declare(ModelId(0), layers, slices);
    server->UsePlan(ModelId(0), plan);
    server->Local({{.step = kStep, .gradient = ViewOf(std::span(local))}, {ModelId(0), LayerId(1)}, slices[1][0]});
    for (std::uint64_t offset = 0; offset < 4 * kStretch; offset += kStretch) {
      if (offset == 2 * kStretch) {  // the next plan, in which the layer leaves first from step 5 on
        plan.switch_step = kStep.next();
        plan.layers[1].send_position = 0;
        plan.layers[0].send_position = 1;
        server->UsePlan(ModelId(0), plan);
      }
      wire::FrameHeader header;
      header.type = wire::FrameType::kPush;
      header.step = kStep;
      header.layer = LayerId(1);
      header.rank = Rank(1);
      header.total = 4 * kStretch;
      header.offset = offset;
      header.length = kStretch;
      const ConstBytes payload(reinterpret_cast<const std::byte*>(remote.data()) + offset, kStretch);
      ASSERT_TRUE(server->PlaceFor(MemberId(1), header).value().empty());
      ASSERT_TRUE(server->OnFrame(MemberId(1), header, payload).ok());
    }
  });
  link.Run();
  EXPECT_THAT(results.offsets, ElementsAre(0, kStretch, 2 * kStretch, 3 * kStretch));
  EXPECT_EQ(local, std::vector<float>(4000, 1.5f));
  link.OnLeft([&] {
    server.reset();
    left.reset();
  });
  link.OnRight([&] { right.reset(); });
  link.Run();
}

// Member 1 contributes with member 0, whose local contribution is for step 4.
class ServerAdmission : public ::testing::Test {
 protected:
  ServerAdmission() {
    const std::vector<plan::LayerSpec> layers = {{.name = "a", .elements = 10}};
    const plan::Slice whole{.shard = 0, .first = 0, .count = 10};
    server_->Declare(ModelId(0), layers, {{whole}});
    server_->OnDiffering([this](const Status& differs) { differing_.push_back(differs.ToString()); });
    server_->Local({{.step = Step(4), .gradient = ViewOf(std::span(local_))}, {ModelId(0), LayerId(0)}, whole});
  }
  wire::FrameHeader Push() const {
    wire::FrameHeader header;
    header.type = wire::FrameType::kPush;
    header.rank = Rank(1);
    header.step = Step(4);
    header.length = 40;
    header.total = 40;
    return header;
  }
  Status Place(const wire::FrameHeader& header) { return server_->PlaceFor(MemberId(1), header).status(); }
  Status Arrive(const wire::FrameHeader& header) {
    return server_->OnFrame(MemberId(1), header, std::as_bytes(std::span(remote_)).first(header.length));
  }

  sim::Simulation simulation_{sim::SimulationOptions{}};
  const std::unique_ptr<Executor> io_ = simulation_.MakeExecutor(simulation_.AddProcess("worker"));
  Nobody nobody_;
  messaging::Mesh mesh_{*io_, {}, nobody_};
  std::vector<float> local_ = std::vector<float>(10, 1);
  const std::vector<float> remote_ = std::vector<float>(10, 2);
  std::vector<std::string> differing_;
  sim::Resident<Server> server_{simulation_, *io_, *io_, mesh_,
                                sync::Topology{.self = MemberId(0),
                                               .self_rank = Rank(0),
                                               .worker_of_rank = {MemberId(0), MemberId(1)},
                                               .owner_of_shard = {MemberId(0)}},
                                nullptr};
};

TEST_F(ServerAdmission, RefusesAFrameThatIsNotSoundInBothCalls) {
  std::vector<wire::FrameHeader> broken(4, Push());
  broken[0].rank = Rank(0);
  broken[1].flags = wire::kFlagAbsent;
  broken[2].layer = LayerId(1);
  broken[3].total = 44;
  for (const wire::FrameHeader& header : broken) {
    EXPECT_EQ(Place(header).code(), StatusCode::kDataLoss);
    EXPECT_EQ(Arrive(header).code(), StatusCode::kDataLoss);
  }
  wire::FrameHeader empty = Push();
  empty.length = 0;
  EXPECT_THAT(Arrive(empty).message(), HasSubstr("not marked absent"));
  EXPECT_THAT(differing_, ElementsAre());
  EXPECT_EQ(local_, std::vector<float>(10, 1));
}

TEST_F(ServerAdmission, HandsOverASoundFrameOfAnotherStepOnce) {
  wire::FrameHeader other = Push();
  other.step = Step(5);
  EXPECT_TRUE(Place(other).ok());
  EXPECT_TRUE(Arrive(other).ok());
  EXPECT_THAT(differing_, ElementsAre(HasSubstr("layer 'a' is pushed for step 4 by worker 0 and for step 5 by worker 1")));
  EXPECT_EQ(local_, std::vector<float>(10, 1));
  EXPECT_TRUE(Place(Push()).ok());
  EXPECT_TRUE(Arrive(Push()).ok());
  EXPECT_EQ(local_, std::vector<float>(10, 1.5f));
}

// Takes what the server says to one rank.
class Grants final : public messaging::FrameSink {
 public:
  Result<MutableBytes> PlaceFor(MemberId, const wire::FrameHeader&) override { return MutableBytes{}; }
  Status OnFrame(MemberId, const wire::FrameHeader& header, ConstBytes) override {
    if (header.type == wire::FrameType::kGrant) ends.push_back(header.offset);
    return OkStatus();
  }
  std::vector<std::uint64_t> Taken() { return std::exchange(ends, {}); }
  std::vector<std::uint64_t> ends;
};

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Member 0 owns two layers of 80 MiB, ranks 1 and 2 contribute to them, with frames of a MiB; rank 0 is member 0 itself, and late.
class ServerGrants : public ::testing::Test {
 protected:
  ServerGrants() {
    link_.Connect();
    link_.OnRight([&] {
      right_ = std::make_unique<messaging::Mesh>(link_.right(), messaging::MeshOptions{}, nobody_);
      for (const wire::FrameType type : {wire::FrameType::kGrant, wire::FrameType::kResult}) right_->Route(type, grants_);
      EXPECT_TRUE(right_->Identify(right_->AddStranger(link_.TakeRight()), MemberId(0)));
    });
    link_.OnLeft([&] {
      left_ = std::make_unique<messaging::Mesh>(link_.left(), messaging::MeshOptions{}, nobody_);
      EXPECT_TRUE(left_->Identify(left_->AddStranger(link_.TakeLeft()), MemberId(1)));
      server_ = std::make_unique<Server>(link_.left(), *left_,
                                         sync::Topology{.self = MemberId(0),
                                                        .self_rank = Rank(0),
                                                        .worker_of_rank = {MemberId(0), MemberId(1), MemberId(2)},
                                                        .owner_of_shard = {MemberId(0)}},
                                         nullptr);
      const std::vector<plan::LayerSpec> layers = {{.name = "a", .elements = kBytes / 4},
                                                   {.name = "b", .elements = kBytes / 4, .forward_position = 1}};
      server_->Declare(ModelId(0), layers, {{kSlice}, {kSlice}});
    });
  }
  ~ServerGrants() override {
    link_.OnLeft([&] {
      server_.reset();
      left_.reset();
    });
    link_.OnRight([&] { right_.reset(); });
    link_.Run();
  }
  // The next `frames` frames of a rank, whose last one says whether more is held back.
  void Arrive(std::uint32_t layer, std::uint16_t rank, std::uint64_t frames, bool held) {
    link_.OnLeft([&] {
      for (std::uint64_t i = 0; i < frames; ++i) {
        std::uint64_t& arrived = arrived_[layer][rank];
        wire::FrameHeader header;
        header.type = wire::FrameType::kPush;
        header.step = step_;
        header.layer = LayerId(layer);
        header.rank = Rank(rank);
        header.length = kMiB;
        header.offset = arrived;
        header.total = kBytes;
        if (held && i + 1 == frames) header.flags = wire::kFlagHeld;
        arrived += kMiB;
        const Result<MutableBytes> place = server_->PlaceFor(MemberId(rank), header);
        ASSERT_TRUE(place.ok()) << place.status().message();
        ASSERT_TRUE(server_->OnFrame(MemberId(rank), header, place->empty() ? ConstBytes(frame_) : ConstBytes(*place)).ok());
      }
    });
    link_.Run();
  }
  void LocalBegins(std::uint32_t layer) {
    link_.OnLeft([&] {
      server_->Local({{.step = step_, .gradient = ViewOf(std::span(local_))}, {ModelId(0), LayerId(layer)}, kSlice});
    });
    link_.Run();
  }
  std::vector<MemberId> Missed() {
    std::vector<wire::Wait> waits;
    link_.OnLeft([&] { server_->AddWaits(&waits); });
    std::vector<MemberId> missed;
    for (const wire::Wait& wait : waits) missed.insert(missed.end(), wait.on.begin(), wait.on.end());
    return missed;
  }
  std::uint64_t Allocated() {
    std::uint64_t bytes = 0;
    link_.OnLeft([&] { bytes = server_->allocated_bytes(); });
    return bytes;
  }

  static constexpr std::uint64_t kBytes = 80 * kMiB;
  static constexpr plan::Slice kSlice{.shard = 0, .first = 0, .count = kBytes / 4};
  TestLink link_{64 << 10};
  Nobody nobody_;
  Grants grants_;
  std::unique_ptr<messaging::Mesh> left_;
  std::unique_ptr<messaging::Mesh> right_;
  std::unique_ptr<Server> server_;
  std::map<std::uint32_t, std::map<std::uint16_t, std::uint64_t>> arrived_;
  Step step_{7};
  std::vector<float> local_ = std::vector<float>(kBytes / 4);
  const ByteBuffer frame_ = ByteBuffer(kMiB);
};

TEST_F(ServerGrants, ALateRankDelaysNobodysTransfer) {
  Arrive(0, 1, 1, /*held=*/false);
  EXPECT_THAT(grants_.Taken(), IsEmpty()) << "more comes by itself";
  Arrive(0, 1, 1, /*held=*/true);
  EXPECT_THAT(grants_.Taken(), ElementsAre(6 * kMiB));
  Arrive(0, 1, 1, /*held=*/true);
  EXPECT_THAT(grants_.Taken(), IsEmpty()) << "half of it is on its way";
  Arrive(0, 1, 1, /*held=*/true);
  EXPECT_THAT(grants_.Taken(), ElementsAre(8 * kMiB));
  EXPECT_THAT(Missed(), ElementsAre(MemberId(0), MemberId(1), MemberId(2))) << "rank 1 may go on";
  LocalBegins(0);
  Arrive(0, 2, 1, /*held=*/true);
  EXPECT_THAT(grants_.Taken(), IsEmpty()) << "sums say how far ranks may go";
  Arrive(0, 1, 4, /*held=*/true);
  EXPECT_THAT(grants_.Taken(), IsEmpty());
  EXPECT_THAT(Missed(), IsEmpty()) << "both wait to be answered";
}

TEST_F(ServerGrants, WhatWaitsForALateRankIsBounded) {
  const std::uint64_t most = server_->run_ahead_bytes();
  ASSERT_EQ(most, 80 * kMiB) << "a quarter of two contributions to two layers";
  for (std::uint64_t i = 0; i < 40; ++i) Arrive(0, 1, 2, /*held=*/i < 39);
  EXPECT_EQ(grants_.Taken().back(), kBytes);
  EXPECT_EQ(Allocated(), most);
  Arrive(1, 1, 2, /*held=*/true);
  EXPECT_THAT(grants_.Taken(), IsEmpty()) << "what is within the window comes, no more";
  EXPECT_EQ(Allocated(), most + 2 * kMiB);
  // The late ranks come to the other layer: its blocks become free, and who waits is granted.
  LocalBegins(0);
  Arrive(0, 2, 3, /*held=*/false);
  EXPECT_THAT(grants_.Taken(), IsEmpty());
  Arrive(0, 2, 4, /*held=*/false);
  EXPECT_THAT(grants_.Taken(), ElementsAre(6 * kMiB));
}

TEST_F(ServerGrants, AStepForgetsTheGrantsOfTheOneBefore) {
  Arrive(0, 1, 1, /*held=*/true);
  EXPECT_THAT(grants_.Taken(), ElementsAre(5 * kMiB));
  LocalBegins(0);
  Arrive(0, 2, 80, /*held=*/false);
  Arrive(0, 1, 79, /*held=*/false);
  EXPECT_THAT(Missed(), IsEmpty());
  EXPECT_THAT(grants_.Taken(), IsEmpty());
  step_ = step_.next();
  arrived_.clear();
  Arrive(0, 1, 2, /*held=*/true);
  EXPECT_THAT(grants_.Taken(), ElementsAre(6 * kMiB));
}

// Models that differ are compared when they are declared; what is broadcast before meets here.
TEST(Server, ACollectiveOfTwoSizesIsAnErrorNotAWriteBeyondTheSmaller) {
  sim::Simulation simulation{sim::SimulationOptions{}};
  const auto io = simulation.MakeExecutor(simulation.AddProcess("worker"));
  Nobody nobody;
  messaging::Mesh mesh(*io, {}, nobody);
  sim::Resident<Server> server(simulation, *io, *io, mesh,
                sync::Topology{.self = MemberId(0),
                         .self_rank = Rank(0),
                         .worker_of_rank = {MemberId(0), MemberId(1)},
                         .owner_of_shard = {MemberId(0)}},
                nullptr);
  wire::FrameHeader header;
  header.type = wire::FrameType::kPush;
  header.model = wire::kCollectiveModel;
  header.rank = Rank(1);
  header.length = 1000 * sizeof(float);
  header.total = header.length;
  const std::vector<float> remote(1000, 2);
  const auto place = server->PlaceFor(MemberId(1), header);
  ASSERT_TRUE(place.ok());
  std::memcpy(place->data(), remote.data(), header.length);
  ASSERT_TRUE(server->OnFrame(MemberId(1), header, ConstBytes(*place)).ok());
  const Key key{wire::kCollectiveModel, LayerId(0)};
  const Status differs = server->CheckOneOff(key, {40, DType::kF32, kSum, Rank(0)});
  EXPECT_EQ(differs.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(differs.message(), HasSubstr("a sum of 40 bytes of f32 by rank 0 and as a sum of 4000 bytes of f32 by rank 1"));
  EXPECT_FALSE(server->CheckOneOff(key, {4000, DType::kF64, kSum, Rank(0)}).ok());
  EXPECT_TRUE(server->CheckOneOff(key, {4000, DType::kF32, kSum, Rank(0)}).ok());
  EXPECT_TRUE(server->CheckOneOff({wire::kCollectiveModel, LayerId(1)}, {40, DType::kF32, kSum, Rank(0)}).ok());
}

}  // namespace
}  // namespace poseidon::kv
