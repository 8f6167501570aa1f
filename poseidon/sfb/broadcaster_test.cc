// SPDX-License-Identifier: Apache-2.0
// How a broadcast ends when the job does. That it sums rightly is shown by whole jobs: tests/integration/core_test.cc.
#include "poseidon/sfb/broadcaster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "poseidon/messaging/test_observer.h"
#include "poseidon/sfb/blas_engine.h"
#include "poseidon/sim/simulation.h"

namespace poseidon::sfb {
namespace {

using messaging::testing::Nobody;
using ::testing::ElementsAre;

// No connection: frames to the other worker fail to leave, a moment after they were sent.
TEST(Broadcaster, AProductUnderWayAndFramesThatNeverLeftCompleteOnceTheJobIsOver) {
  sim::Simulation simulation{sim::SimulationOptions{}};
  const sim::ProcessId process = simulation.AddProcess("worker");
  const auto io = simulation.MakeExecutor(process);
  const auto compute = simulation.MakeExecutor(process);
  Nobody nobody;
  messaging::Mesh mesh(*io, {}, nobody);
  const auto engine = MakeBlasEngine(1);
  Broadcaster broadcaster(*io, *compute, mesh,
                          {.self = MemberId(0),
                           .self_rank = Rank(0),
                           .worker_of_rank = {MemberId(0), MemberId(1)}},
                          *engine, nullptr);
  const std::vector<plan::LayerSpec> layers = {
      {.name = "fc", .elements = 6, .factors = plan::FactorShape{2, 3, false}}};
  broadcaster.Declare(ModelId(0), layers);
  wire::FrameHeader empty;  // the other worker has no rows
  empty.type = wire::FrameType::kFactor;
  empty.rank = Rank(1);
  empty.flags = wire::kFlagAbsent;
  ASSERT_TRUE(broadcaster.OnFrame(MemberId(1), empty, {}).ok());

  std::vector<float> rows(3, 1.0f);
  std::vector<float> gradient(6);
  std::vector<StatusCode> done;
  broadcaster.Broadcast({.model = ModelId(0),
                         .layer = LayerId(0),
                         .step = Step(0),
                         .factors = {reinterpret_cast<const std::byte*>(rows.data()),
                                     reinterpret_cast<const std::byte*>(rows.data()), 1},
                         .gradient = reinterpret_cast<std::byte*>(gradient.data()),
                         .priority = {},
                         .plan_epoch = {},
                         .done = [&](const Status& status) { done.push_back(status.code()); }});
  broadcaster.Abandon(Unavailable("over"));
  EXPECT_TRUE(done.empty()) << "the product still writes";
  simulation.RunFor(std::chrono::seconds(1));
  EXPECT_THAT(done, ElementsAre(StatusCode::kUnavailable));
}

}  // namespace
}  // namespace poseidon::sfb
