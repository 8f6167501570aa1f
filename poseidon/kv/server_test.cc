// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
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
