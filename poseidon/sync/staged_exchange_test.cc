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
#include "tests/shared/fake_device.h"

namespace poseidon::sync {
namespace {

TEST(StagedExchange, HandsOnTheWholeContributionInHostMemory) {
  sim::Simulation simulation{sim::SimulationOptions{}};
  const std::unique_ptr<Executor> io = simulation.MakeExecutor(simulation.AddProcess("worker"));
  device::HostDevice device(*io);
  auto inner = std::make_unique<testing::KeptExchange>();
  testing::KeptExchange& kept = *inner;
  sim::Resident<StagedExchange> staged(simulation, *io, *io, std::move(inner), device, std::make_shared<StagingByLayer>(), nullptr);
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

// A box of the trace is a copy, and not what it waits for: the kernel before it, and the exchange between the two.
TEST(StagedExchange, TheTraceHasItsCopies) {
  using std::chrono::microseconds;
  using std::chrono::milliseconds;
  sim::Simulation simulation{sim::SimulationOptions{}};
  const std::unique_ptr<Executor> io = simulation.MakeExecutor(simulation.AddProcess("worker"));
  device::FakeDevice device(*io, {.copy_latency = microseconds(10), .copy_bytes_per_second = 1e9});
  auto inner = std::make_unique<testing::KeptExchange>();
  testing::KeptExchange& kept = *inner;
  TraceRecorder trace({});
  sim::Resident<StagedExchange> staged(simulation, *io, *io, std::move(inner), device, std::make_shared<StagingByLayer>(), &trace);
  const std::vector<plan::LayerSpec> layers = {{.name = "fc", .elements = 250'000}};
  staged->Declare(ModelId(2), layers);
  SyncRequest request;
  request.step = Step(7);
  request.gradient = {.memory = device.Allocate(1'000'000)->address, .elements = 250'000};
  request.on_device = true;
  request.ready = device.Launch(milliseconds(5), [] {});
  bool done = false;
  request.done = [&done](const Status& status) { done = status.ok(); };

  staged->Start({ModelId(2), LayerId(0)}, std::move(request));
  simulation.RunUntil(TimePoint{milliseconds(20)});
  ASSERT_TRUE(kept.kept.has_value());
  io->Post([then = std::move(kept.kept->done)] { then(OkStatus()); });
  simulation.Run();
  EXPECT_TRUE(done);

  const std::vector<TraceSpan> spans = trace.Take();
  ASSERT_EQ(spans.size(), 2u);
  const Duration copy = microseconds(1010);
  EXPECT_EQ(spans[0].lane, TraceLane::kToHost);
  EXPECT_EQ(spans[0].begin, TimePoint{milliseconds(5)});
  EXPECT_EQ(spans[0].end, spans[0].begin + copy);
  EXPECT_EQ(spans[1].lane, TraceLane::kToDevice);
  EXPECT_EQ(spans[1].begin, TimePoint{milliseconds(20)});
  EXPECT_EQ(spans[1].end, spans[1].begin + copy);
  for (const TraceSpan& span : spans) {
    EXPECT_EQ(span.step, 7u);
    EXPECT_EQ(span.model, 2);
    EXPECT_EQ(span.layer, 0);
    EXPECT_EQ(span.bytes, 1'000'000u);
  }
}

}  // namespace
}  // namespace poseidon::sync
