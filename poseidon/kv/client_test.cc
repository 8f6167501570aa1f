// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/client.h"

#include <gtest/gtest.h>

#include "poseidon/messaging/test_observer.h"
#include "poseidon/sim/resident.h"

namespace poseidon::kv {
namespace {

// A frame without bytes comes without PlaceFor, and what takes it counts it for its layer.
TEST(Client, AResultThatNobodyWaitsForIsRefusedAlsoWithoutBytes) {
  sim::Simulation simulation{sim::SimulationOptions{}};
  const auto io = simulation.MakeExecutor(simulation.AddProcess("worker"));
  messaging::testing::Nobody nobody;
  messaging::Mesh mesh(*io, {}, nobody);
  sim::Resident<Client> client(simulation, *io, *io, mesh,
                sync::Topology{.self = MemberId(0),
                         .self_rank = Rank(0),
                         .worker_of_rank = {MemberId(0), MemberId(1)},
                         .owner_of_shard = {MemberId(0), MemberId(1)}},
                nullptr);
  wire::FrameHeader header;
  header.type = wire::FrameType::kResult;
  header.layer = LayerId(0xffffffff);
  EXPECT_EQ(client->OnFrame(MemberId(1), header, {}).code(), StatusCode::kDataLoss);
  EXPECT_EQ(client->PlaceFor(MemberId(1), header).status().code(), StatusCode::kDataLoss);
  client->Abandon(Unavailable("the job has ended"));
  EXPECT_TRUE(client->OnFrame(MemberId(1), header, {}).ok()) << "what was under way may still come";
}

}  // namespace
}  // namespace poseidon::kv
