// SPDX-License-Identifier: Apache-2.0
// What a staged exchange hands on. That means land rightly on a device is shown with an exchange inside:
// poseidon/kv/exchange_test.cc and tests/integration.
#include "poseidon/sync/staged_exchange.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "poseidon/device/host_device.h"
#include "poseidon/sim/resident.h"
#include "poseidon/sync/test_contribution.h"

namespace poseidon::sync {
namespace {

TEST(StagedExchange, HandsOnTheWholeContributionInHostMemory) {
  sim::Simulation simulation{sim::SimulationOptions{}};
  const std::unique_ptr<Executor> io = simulation.MakeExecutor(simulation.AddProcess("worker"));
  device::HostDevice device(*io);
  auto inner = std::make_unique<testing::KeptExchange>();
  testing::KeptExchange& kept = *inner;
  sim::Resident<StagedExchange> staged(simulation, *io, *io, std::move(inner), device, std::make_shared<StagingByLayer>());
  const std::vector<plan::LayerSpec> layers = {
      {.name = "fc", .elements = 6, .factors = plan::FactorShape{.outputs = 2, .inputs = 3}}};
  staged->Declare(ModelId(0), layers);
  std::vector<float> numbers(6);
  Contribution expected = testing::FullContribution(numbers);
  bool done = false;
  SyncRequest request{expected};
  request.priority = {messaging::Priority::kData, 3, 1};
  request.done = [&done](const Status& status) { done = status.ok(); };

  staged->Start({ModelId(0), LayerId(0)}, std::move(request));
  ASSERT_TRUE(kept.kept.has_value());
  EXPECT_NE(kept.kept->gradient.memory, expected.gradient.memory);
  expected.gradient.memory = kept.kept->gradient.memory;
  expected.on_device = false;
  expected.ready = nullptr;
  expected.in_parts = false;
  EXPECT_TRUE(*kept.kept == expected);
  EXPECT_EQ(kept.kept->priority, (messaging::Priority{messaging::Priority::kData, 3, 1}));

  io->Post([then = std::move(kept.kept->done)] { then(OkStatus()); });
  simulation.Run();
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace poseidon::sync
