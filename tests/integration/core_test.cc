// SPDX-License-Identifier: Apache-2.0
// The whole core in three worlds: threads over memory, threads over sockets, virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "poseidon/factors/blas_engine.h"
#include "tests/integration/job.h"
#include "tests/integration/odd_job.h"

namespace poseidon::integration {
namespace {

using Numbers = std::vector<std::uint16_t>;
using ::testing::AllOf;
using ::testing::HasSubstr;

plan::PlanOptions Forced(std::map<std::string, plan::Scheme> schemes) {
  plan::PlanOptions options;
  options.forced = std::move(schemes);
  return options;
}

constexpr plan::Scheme kFactorSchemes[] = {plan::Scheme::kFactorBroadcast, plan::Scheme::kFactorScatter};

class CoreTest : public ::testing::TestWithParam<WorldCase> {
 protected:
  std::unique_ptr<World> world_ = GetParam().make();
};

// Fifty steps, every result of every layer at every rank equal to the oracle's bits; the switch
// from the provisional to the final plan at step 10 changes fc1 from dense to factors.
TEST_P(CoreTest, ReplicasEqualTheOracleBitForBit) {
  for (const plan::Scheme scheme : kFactorSchemes) {
    SCOPED_TRACE(plan::NameOf(scheme));
    for (const auto& [workers, servers] : std::vector<std::pair<std::uint16_t, std::uint16_t>>{
             {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {1, 1}, {2, 3}, {3, 1}, {3, 2}, {4, 3}}) {
      SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(servers) + " servers");
      JobOptions options = OddJob(workers, servers);
      options.node.planning = Forced({{"fc2", scheme}});
      options.gradients.seed = workers * 10u + servers;
      const std::unique_ptr<World> world = GetParam().make();
      Job job(*world, options);
      ASSERT_TRUE(job.Run());
      job.ExpectAllWell();
      job.ExpectExactPayload();
    }
  }
}

// Layers that go on by themselves, absent ranks, weights, factors from the first step.
TEST_P(CoreTest, AbsentRanksWeightsAndFreeRunningLayers) {
  for (const std::uint16_t workers : Numbers{2, 3, 5}) {
    for (const std::uint16_t servers : Numbers{0, 2}) {
      SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(servers) + " servers");
      JobOptions options = OddJob(workers, servers);
      options.steps = 30;
      options.lockstep = false;
      options.gradients = {.seed = workers, .absent = 0.3, .max_rows = 4, .weighted = true};
      options.node.planning = Forced({{"fc1", kFactorSchemes[(workers + servers / 2) % 2]}});
      options.max_compute = std::chrono::microseconds(world_->is_virtual() ? 500 : 0);
      const std::unique_ptr<World> world = GetParam().make();
      Job job(*world, options);
      ASSERT_TRUE(job.Run());
      job.ExpectAllWell();
    }
  }
}

// Through several lanes: layers that go through all of them and layers that go through one, whole or in parts, from a
// device, and of workers that combine on their hosts.
TEST_P(CoreTest, LanesBringTheSameBits) {
  enum class Memory { kHost, kInParts, kDevice, kSharedByHosts };
  for (const Memory memory : {Memory::kHost, Memory::kInParts, Memory::kDevice, Memory::kSharedByHosts}) {
    for (const auto& [workers, servers] :
         std::vector<std::pair<std::uint16_t, std::uint16_t>>{{1, 0}, {2, 0}, {3, 2}, {4, 0}}) {
      const bool some = workers == 2 || workers == 3;  // of the numbers of workers, for the other memories
      if (memory != Memory::kHost && !some) continue;
      SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(servers) + " servers, memory " +
                   std::to_string(static_cast<int>(memory)));
      JobOptions options = OddJob(workers, servers);
      options.layers.push_back(Dense("large", 60'001));
      options.layers.push_back(Dense("large f64", 30'011, DType::kF64));
      options.layers = InForwardOrder(options.layers);
      options.steps = 14;
      options.lockstep = false;
      options.node.lanes = static_cast<std::uint16_t>(2 + workers % 2);
      options.node.planning = Forced({{"fc2", kFactorSchemes[workers % 2]}});
      options.gradients.seed = workers;
      options.in_parts = memory == Memory::kInParts;
      options.on_device = memory == Memory::kDevice;
      if (memory == Memory::kSharedByHosts) {
        options.node.levels = plan::Levels::kHost;
        options.machines.assign(workers, "a");
        options.machines.back() = "b";
      }
      const std::unique_ptr<World> world = GetParam().make();
      Job job(*world, options);
      ASSERT_TRUE(job.Run());
      job.ExpectAllWell();
      EXPECT_EQ(job.outcome(MemberId(0)).provisional->cluster.lanes, options.node.lanes);
      job.ExpectExactPayload();
    }
  }
}

// The same job on accelerators: a kernel makes each gradient after it was pushed, copies take time,
// and memory of the device that is touched without a copy stops the program.
TEST_P(CoreTest, GradientsOnADeviceComeOutTheSame) {
  for (const std::uint16_t servers : Numbers{0, 2}) {
    JobOptions options = OddJob(3, servers);
    options.steps = 12;
    options.on_device = true;
    options.gradients = {.seed = 5, .absent = 0.1, .max_rows = 6, .weighted = servers == 2};
    options.node.planning = Forced({{"fc2", kFactorSchemes[servers / 2]}});
    const std::unique_ptr<World> world = GetParam().make();
    Job job(*world, options);
    ASSERT_TRUE(job.Run());
    job.ExpectAllWell();
  }
}

// The same job on gradients of which the beginning is under way while the rest is written. What takes no parts gets them
// whole.
TEST_P(CoreTest, GradientsInPartsComeOutTheSame) {
  for (const auto& [workers, servers] : std::vector<std::pair<std::uint16_t, std::uint16_t>>{{1, 0}, {3, 0}, {4, 2}}) {
    for (const plan::Placement placement : {plan::Placement::kEven, plan::Placement::kWhole}) {
      SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(servers) + " servers");
      JobOptions options = OddJob(workers, servers);
      options.steps = 15;
      options.lockstep = servers == 0;
      options.in_parts = true;
      options.gradients = {.seed = workers, .absent = servers == 2 ? 0.2 : 0, .max_rows = 4, .weighted = servers == 2};
      options.node.strategy.placement = placement;
      options.node.planning = Forced({{"fc2", kFactorSchemes[servers / 2]}});
      const std::unique_ptr<World> world = GetParam().make();
      Job job(*world, options);
      ASSERT_TRUE(job.Run());
      job.ExpectAllWell();
      if (servers == 0) job.ExpectExactPayload();
    }
  }
}

// Large enough that a device's gradient leaves while it is copied.
TEST_P(CoreTest, LargeGradientsOnADeviceLeaveInParts) {
  JobOptions options = OddJob(3, 0);
  options.steps = 3;
  options.on_device = true;
  options.layers = InForwardOrder({Dense("large", 2'600'001), Dense("doubles", 700'003, DType::kF64), Dense("small", 5)});
  options.gradients = {.seed = 3, .weighted = true};
  options.node.strategy.flow = {};
  options.node.strategy.flow_is_fixed = false;
  options.node.probe_bytes = 1 << 20;
  Job job(*world_, options);
  ASSERT_TRUE(job.Run());
  job.ExpectAllWell();
  job.ExpectExactPayload();
}

// More than a chunk, more than a frame, more than any buffer.
TEST_P(CoreTest, LargeTensorsTravelInPieces) {
  for (const plan::Scheme scheme : kFactorSchemes) {
    SCOPED_TRACE(plan::NameOf(scheme));
    for (const std::uint16_t servers : Numbers{0, 1}) {
      JobOptions options = OddJob(3, servers);
      options.steps = 4;
      options.layers = InForwardOrder(
          {Dense("large", 700'001), FullyConnected("fc", 301, 1009), Dense("small", 5)});
      options.node.planning = Forced({{"fc", scheme}});
      options.gradients.max_rows = 300;
      options.node.strategy.flow = {};
      options.node.strategy.flow_is_fixed = false;
      options.node.probe_bytes = 1 << 20;
      options.collective_elements = 300'000;
      const std::unique_ptr<World> world = GetParam().make();
      Job job(*world, options);
      ASSERT_TRUE(job.Run());
      job.ExpectAllWell();
      job.ExpectExactPayload();
    }
  }
}

// Every factor compressed, in frames that cut its groups of words: the same bits, also of -0.
TEST_P(CoreTest, CompressedFactorsComeOutTheSame) {
  for (const plan::Scheme scheme : kFactorSchemes) {
    for (const std::uint16_t servers : Numbers{0, 2}) {
      SCOPED_TRACE(std::string(plan::NameOf(scheme)) + ", " + std::to_string(servers) + " servers");
      JobOptions options = OddJob(3, servers);
      options.steps = 15;
      options.lockstep = servers == 0;
      options.on_device = servers == 2;
      options.gradients = {.seed = servers, .absent = servers == 2 ? 0.2 : 0, .max_rows = 40, .zeros = 0.6, .weighted = servers == 2};
      options.node.planning = Forced({{"fc1", scheme}, {"fc2", scheme}});
      options.node.strategy.zero_compression = plan::ZeroCompression::kAlways;
      options.node.strategy.flow = {.chunk_bytes = 101, .write_bytes = 9000, .window_bytes = 1000};
      const std::unique_ptr<World> world = GetParam().make();
      Job job(*world, options);
      ASSERT_TRUE(job.Run());
      job.ExpectAllWell();
      if (servers == 0) job.ExpectExactPayload();
      // A layer of 64 bits, more than half of whose words are zero.
      const messaging::TrafficCount& sent = job.outcome(MemberId(0)).factors[5].sent;
      const messaging::TrafficCount& results = job.outcome(MemberId(0)).factors[5].received;
      EXPECT_LT(sent.payload_bytes, sent.whole_bytes);
      EXPECT_LE(results.payload_bytes, results.whole_bytes);
    }
  }
}

// At 1 Gbit/s large factors of which half is zero leave without it, and dense ones as they are.
TEST_P(CoreTest, FactorsLeaveWithoutTheirZerosWhereThatPays) {
  if (!world_->is_virtual()) GTEST_SKIP() << "rates are not known before";
  for (const double zeros : {0.0, 0.5}) {
    JobOptions options = OddJob(2, 0);
    options.steps = 4;
    options.layers = InForwardOrder({FullyConnected("fc", 301, 1009)});
    options.node.planning = Forced({{"fc", plan::Scheme::kFactorBroadcast}});
    options.gradients = {.min_rows = 50, .max_rows = 60, .zeros = zeros};
    options.node.probe_bytes = 1 << 20;
    const std::unique_ptr<World> world = GetParam().make();
    Job job(*world, options);
    ASSERT_TRUE(job.Run());
    job.ExpectAllWell();
    job.ExpectExactPayload();
    const messaging::TrafficCount& sent = job.outcome(MemberId(0)).factors[0].sent;
    const double share = static_cast<double>(sent.payload_bytes) / static_cast<double>(sent.whole_bytes);
    EXPECT_NEAR(share, zeros == 0 ? 1 : 1 - 0.9 * zeros + 1.0 / 32, zeros == 0 ? 0 : 0.02);
  }
}

// As key-value stores of 2017 placed layers: the same bits, at whole owners.
TEST_P(CoreTest, WholeLayersAtTheirOwners) {
  for (const auto& [workers, servers] :
       std::vector<std::pair<std::uint16_t, std::uint16_t>>{{1, 0}, {2, 0}, {4, 0}, {3, 2}}) {
    SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(servers) + " servers");
    JobOptions options = OddJob(workers, servers);
    options.steps = 20;
    options.gradients.seed = workers;
    options.gradients.absent = 0.1;
    options.node.strategy.placement = plan::Placement::kWhole;
    options.node.strategy.order = messaging::Order::kArrival;
    options.node.planning = Forced({{"fc2", plan::Scheme::kFactorBroadcast}});
    const std::unique_ptr<World> world = GetParam().make();
    Job job(*world, options);
    ASSERT_TRUE(job.Run());
    job.ExpectAllWell();
  }
}

// The orders of published systems move the same bytes and give the same bits, through pieces so small that
// layers overtake one another.
TEST_P(CoreTest, EveryOrderOnTheWire) {
  for (const messaging::Order order :
       {messaging::Order::kArrival, messaging::Order::kLayer, messaging::Order::kTwoPhase}) {
    for (const auto& [workers, servers] :
         std::vector<std::pair<std::uint16_t, std::uint16_t>>{{3, 0}, {2, 2}}) {
      SCOPED_TRACE(std::string(messaging::NameOf(order)) + ", " + std::to_string(servers) +
                   " servers");
      JobOptions options = OddJob(workers, servers);
      options.steps = 20;
      options.lockstep = false;
      options.gradients = {.seed = workers, .absent = 0.1, .max_rows = 6};
      options.node.strategy.order = order;
      options.node.planning = Forced({{"fc2", kFactorSchemes[servers / 2]}});
      const std::unique_ptr<World> world = GetParam().make();
      Job job(*world, options);
      ASSERT_TRUE(job.Run());
      job.ExpectAllWell();
    }
  }
}

TEST_P(CoreTest, TheFinalPlanHoldsFromItsSwitchStepEverywhere) {
  for (const std::uint64_t switch_step : {0u, 1u, 7u}) {
    SCOPED_TRACE(switch_step);
    JobOptions options = OddJob(3, 0);
    options.steps = 12;
    // By bytes this layer goes as factors; before anything was measured it is dense.
    options.layers = InForwardOrder({FullyConnected("fat", 300, 200), Dense("thin", 100)});
    options.gradients.max_rows = 4;
    options.node.planning.policy = plan::Policy::kBytes;
    options.node.final_plan_step = switch_step;
    const std::unique_ptr<World> world = GetParam().make();
    Job job(*world, options);
    ASSERT_TRUE(job.Run());
    job.ExpectAllWell();
    const Outcome& first = job.outcome(MemberId(0));
    EXPECT_EQ(first.provisional->layers[0].scheme, plan::Scheme::kKeyValue);
    EXPECT_EQ(first.final_plan->layers[0].scheme, plan::Scheme::kFactorBroadcast);
    EXPECT_EQ(first.final_plan->switch_step, Step(switch_step));
    EXPECT_EQ(first.final_plan->epoch, PlanEpoch(1));
    // So many steps dense, the others as factors, and not one both or neither way.
    job.ExpectExactPayload();
  }
}

TEST_P(CoreTest, PinnedSchemesHoldFromTheFirstStep) {
  JobOptions options = OddJob(2, 0);
  options.steps = 12;
  options.node.planning =
      Forced({{"fc1", plan::Scheme::kFactorBroadcast}, {"fc2", plan::Scheme::kKeyValue}});
  Job job(*world_, options);
  ASSERT_TRUE(job.Run());
  job.ExpectAllWell();
  job.ExpectExactPayload();
  for (const auto& plan :
       {job.outcome(MemberId(1)).provisional, job.outcome(MemberId(1)).final_plan}) {
    EXPECT_EQ(plan->layers[3].scheme, plan::Scheme::kFactorBroadcast);
    EXPECT_TRUE(plan->layers[3].forced);
    EXPECT_EQ(plan->layers[5].scheme, plan::Scheme::kKeyValue);
  }
}

TEST_P(CoreTest, AnUnknownPinnedLayerEndsTheJobForAll) {
  JobOptions options = OddJob(2, 1);
  options.node.planning = Forced({{"fc9", plan::Scheme::kFactorBroadcast}});
  Job job(*world_, options);
  ASSERT_TRUE(job.Run());
  job.ExpectAllBlame(kNoCulprit);
  for (std::uint16_t m = 0; m < 3; ++m) {
    EXPECT_THAT(job.outcome(MemberId(m)).failure.message(), HasSubstr("fc9"));
  }
}

// An engine that gives other bits: its layers go the dense way, forced or not.
class OtherBits final : public factors::ProductEngine {
 public:
  explicit OtherBits(factors::ProductEngine& engine) : engine_(engine) {}
  Status Multiply(const Product& product) override {
    Status status = engine_.Multiply(product);
    product.out[0] ^= std::byte{1};
    return status;
  }
  std::string description() const override { return "other bits"; }

 private:
  factors::ProductEngine& engine_;
};

TEST_P(CoreTest, EnginesThatDifferSendTheirLayersTheDenseWay) {
  const auto blas = factors::MakeBlasEngine(1);
  OtherBits other(*blas);
  JobOptions options = OddJob(3, 0);
  options.steps = 12;
  options.node.planning = Forced({{"fc1", plan::Scheme::kFactorBroadcast}});
  options.engine = [&](Rank rank) -> factors::ProductEngine* {
    return rank == Rank(2) ? static_cast<factors::ProductEngine*>(&other) : blas.get();
  };
  {
    Job job(*world_, options);
    ASSERT_TRUE(job.Run());
    job.ExpectAllWell();
    job.ExpectExactPayload();
    EXPECT_EQ(job.outcome(MemberId(0)).final_plan->layers[3].scheme, plan::Scheme::kKeyValue);
    EXPECT_THAT(job.outcome(MemberId(0)).final_plan->layers[3].reason, HasSubstr("product"));
  }
}

TEST_P(CoreTest, WithoutAnEngineEverythingIsDense) {
  JobOptions options = OddJob(2, 0);
  options.steps = 12;
  options.engine = [](Rank) { return nullptr; };
  Job job(*world_, options);
  ASSERT_TRUE(job.Run());
  job.ExpectAllWell();
  job.ExpectExactPayload();
}

TEST_P(CoreTest, NetsThatDifferAreToldApartOnEveryWorker) {
  JobOptions options = OddJob(3, 1);
  options.declared = [&](Rank rank) {
    auto layers = OddLayers();
    if (rank == Rank(2)) layers[1] = Dense("odd", 1024);
    layers[1].forward_position = 1;
    return layers;
  };
  Job job(*world_, options);
  ASSERT_TRUE(job.Run());
  job.ExpectAllBlame(kNoCulprit);
  for (std::uint16_t m = 0; m < 4; ++m) {
    const Status& failure = job.outcome(MemberId(m)).failure;
    EXPECT_EQ(failure.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(failure.message(), AllOf(HasSubstr("layer 'odd'"), HasSubstr("worker 2"),
                                         HasSubstr("1024"), HasSubstr("1023")));
  }
}

TEST_P(CoreTest, AKilledWorkerIsBlamedByAll) {
  for (const std::uint16_t victim : Numbers{1, 2, 3, 4}) {  // workers 1 to 3, server 0
    SCOPED_TRACE(victim);
    JobOptions options = OddJob(4, 1);
    options.steps = 1'000'000;
    options.in_parts = victim % 2 == 1;
    options.node.lanes = victim % 2 == 0 ? 2 : 1;
    const std::unique_ptr<World> world = GetParam().make();
    Job job(*world, options);
    job.Start();
    ASSERT_TRUE(world->Await(job.landed(), 400));
    job.Kill(MemberId(victim));
    ASSERT_TRUE(job.AwaitEnd());
    job.ExpectAllBlame(victim);
    const std::string name = victim == 4 ? "server 0" : "worker " + std::to_string(victim);
    EXPECT_THAT(job.outcome(MemberId(0)).failure.message(), HasSubstr(name));
    EXPECT_EQ(job.outcome(MemberId(0)).failure.code(), StatusCode::kUnavailable);
  }
}

TEST_P(CoreTest, TheKilledCoordinatorIsBlamedByAll) {
  JobOptions options = OddJob(3, 1);
  options.steps = 1'000'000;
  Job job(*world_, options);
  job.Start();
  ASSERT_TRUE(world_->Await(job.landed(), 400));
  job.Kill(MemberId(0));
  ASSERT_TRUE(job.AwaitEnd());
  job.ExpectAllBlame(0);
  EXPECT_THAT(job.outcome(MemberId(2)).failure.message(), HasSubstr("worker 0"));
}

// An ABORT reaches everybody with its reason, and blames nobody who has not failed.
TEST_P(CoreTest, AnAbortIsTheSameEverywhere) {
  for (const std::uint16_t aborter : Numbers{0, 2, 3}) {
    SCOPED_TRACE(aborter);
    JobOptions options = OddJob(3, 1);
    options.steps = 1'000'000;
    const std::unique_ptr<World> world = GetParam().make();
    Job job(*world, options);
    job.Start();
    ASSERT_TRUE(world->Await(job.landed(), 300));
    job.Abort(MemberId(aborter), Status(StatusCode::kResourceExhausted, "the disk is full",
                                        StatusScope::kJob, aborter));
    ASSERT_TRUE(job.AwaitEnd());
    job.ExpectAllBlame(aborter);
    for (std::uint16_t m = 0; m < 4; ++m) {
      EXPECT_EQ(job.outcome(MemberId(m)).failure.code(), StatusCode::kResourceExhausted);
      EXPECT_THAT(job.outcome(MemberId(m)).failure.message(), HasSubstr("the disk is full"));
    }
  }
}

// A server that would need more memory than it may have refuses at the start, by name.
TEST_P(CoreTest, AServerThatIsTooSmallSaysSo) {
  JobOptions options = OddJob(2, 1);
  options.layers = InForwardOrder({Dense("large", 1'000'000)});
  options.node.memory_limit_bytes = 5 << 20;
  Job job(*world_, options);
  ASSERT_TRUE(job.Run());
  job.ExpectAllBlame(2);
  for (std::uint16_t m = 0; m < 3; ++m) {
    EXPECT_THAT(job.outcome(MemberId(m)).failure.message(),
                AllOf(HasSubstr("server 0"), HasSubstr("needs 12 MiB"), HasSubstr("5 MiB")));
  }
}

TEST_P(CoreTest, TheSecondServerIsNamedAsSuch) {
  JobOptions options = OddJob(2, 2);
  options.layers = InForwardOrder({Dense("small", 10), Dense("large", 1'000'000)});
  options.node.strategy.placement = plan::Placement::kWhole;
  options.node.memory_limit_bytes = 5 << 20;
  Job job(*world_, options);
  ASSERT_TRUE(job.Run());
  job.ExpectAllBlame(3);
  for (std::uint16_t m = 0; m < 4; ++m) {
    EXPECT_THAT(job.outcome(MemberId(m)).failure.message(), HasSubstr("server 1"));
  }
}

TEST_P(CoreTest, AModelWithoutLayersOnlyMeets) {
  JobOptions options = OddJob(3, 1);
  options.layers.clear();
  options.steps = 0;
  Job job(*world_, options);
  ASSERT_TRUE(job.Run());
  job.ExpectAllWell();
}

// The core's own memory: (2 - 1/P) x weights for dense layers and 2 (P - 1) K (M + N) numbers for
// factor layers, at most.
TEST_P(CoreTest, MemoryStaysWithinItsBound) {
  JobOptions options = OddJob(4, 0);
  options.layers = InForwardOrder({Dense("large", 100'000), FullyConnected("fc", 100, 200)});
  options.node.planning = Forced({{"fc", plan::Scheme::kFactorBroadcast}});
  options.gradients.min_rows = 8;
  options.gradients.max_rows = 8;
  options.lockstep = false;
  options.steps = 12;
  options.collectives = false;
  Job job(*world_, options);
  ASSERT_TRUE(job.Run());
  job.ExpectAllWell();
  const std::uint64_t weights = (100'000 + 100 * 200 + 100) * 4;
  const std::uint64_t factors = 2 * 3 * 8 * (100 + 200) * 4;
  for (std::uint16_t m = 0; m < 4; ++m) {
    EXPECT_LE(job.outcome(MemberId(m)).allocated_bytes, weights * 7 / 4 + factors);
    EXPECT_GE(job.outcome(MemberId(m)).allocated_bytes, weights / 4) << "is it counted?";
  }
  // On a device one copy more of the weights and of the own factors, in which all layers are staged.
  options.on_device = true;
  const std::unique_ptr<World> world = GetParam().make();
  Job staged(*world, options);
  ASSERT_TRUE(staged.Run());
  staged.ExpectAllWell();
  const std::uint64_t staging = weights + 8 * (100 + 200) * 4;
  for (std::uint16_t m = 0; m < 4; ++m) {
    EXPECT_LE(staged.outcome(MemberId(m)).allocated_bytes, weights * 7 / 4 + factors + staging);
    EXPECT_GE(staged.outcome(MemberId(m)).allocated_bytes, staging) << "is it counted?";
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, CoreTest, ::testing::Values(kInproc, kTls, kPlain, kVirtual),
                         NameOfWorld);

// Buffers of 256 KiB let through a tenth of this link in 20 ms.
TEST(LinkProbeTest, FillsALongLink) {
  VirtualOptions long_link;
  long_link.rate = 125e6;
  long_link.network.latency = std::chrono::milliseconds(10);
  long_link.network.send_buffer_bytes = 256 * 1024;
  long_link.network.receive_buffer_bytes = 16 << 20;
  VirtualWorld world(long_link);
  JobOptions options = OddJob(2, 0);
  options.steps = 1;
  options.node.strategy.flow_is_fixed = false;
  options.node.probe_bytes = 4 << 20;
  Job job(world, options);
  ASSERT_TRUE(job.Run());
  const plan::ClusterSpec& cluster = job.outcome(MemberId(0)).provisional->cluster;
  EXPECT_NEAR(cluster.bandwidth, long_link.rate, 0.1 * long_link.rate);
  EXPECT_NEAR(cluster.latency, 10e-3, 1e-3);
}

}  // namespace
}  // namespace poseidon::integration
