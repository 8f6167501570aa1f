// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/client.h"

#include <gtest/gtest.h>

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
