// SPDX-License-Identifier: Apache-2.0
// Workers of one host combine through shared memory before anything crosses the network: the same bits
// as one process that sums by host, nearly those of flat workers, exactly the bytes of hosts, and the
// same promises when somebody dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "poseidon/plan/payload.h"
#include "poseidon/plan/slices.h"
#include "poseidon/factors/blas_engine.h"
#include "tests/integration/job.h"
#include "tests/integration/odd_job.h"

namespace poseidon::integration {
namespace {

using Machines = std::vector<std::string>;
using ::testing::Each;
using ::testing::HasSubstr;

// 2 x 2, 2 x 4, uneven, with a worker alone, one host only, ranks that are not contiguous by host.
std::vector<Machines> Topologies() {
  return {
      {"a", "a", "b", "b"},
      {"a", "a", "a", "a", "b", "b", "b", "b"},
      {"a", "a", "a", "b"},
      {"a", "b", "b"},
      {"a", "a", ""},
      {"a", "a", "a"},
      {"a", "a", "a", "a"},
      {"a", "b", "a", "c", "b"},
  };
}

std::string NameOf(const Machines& machines) {
  std::string name;
  for (const std::string& machine : machines) name += machine.empty() ? "-" : machine;
  return name;
}

constexpr plan::Scheme kFactorSchemes[] = {plan::Scheme::kFactorBroadcast, plan::Scheme::kFactorScatter};

JobOptions OddJob(const Machines& machines, std::uint16_t servers = 0) {
  JobOptions options = integration::OddJob(static_cast<std::uint16_t>(machines.size()), servers);
  options.machines = machines;
  options.steps = 20;
  options.node.levels = plan::Levels::kHost;
  options.node.planning.forced["fc2"] = plan::Scheme::kFactorBroadcast;
  return options;
}

class LevelsTest : public ::testing::TestWithParam<WorldCase> {
 protected:
  std::unique_ptr<World> world_ = GetParam().make();
};

// The switch from the provisional to the final plan at step 10 changes fc1 from dense to factors.
TEST_P(LevelsTest, ReplicasEqualTheOracleBitForBit) {
  for (const Machines& machines : Topologies()) {
    for (const std::uint16_t servers : {std::uint16_t{0}, std::uint16_t{2}}) {
      SCOPED_TRACE(NameOf(machines) + ", " + std::to_string(servers) + " servers");
      JobOptions options = OddJob(machines, servers);
      options.gradients.seed = machines.size() * 10 + servers;
      options.node.planning.policy = plan::Policy::kBytes;
      if (machines.size() == 4) options.node.lanes = 2;
      if (machines.size() == 8) options.node.strategy.placement = plan::Placement::kPairs;
      options.on_device = machines.size() == 3;
      if (servers == 2 || machines.size() == 4) options.node.planning.forced["fc2"] = plan::Scheme::kFactorScatter;
      const std::unique_ptr<World> world = GetParam().make();
      Job job(*world, options);
      ASSERT_TRUE(job.Run());
      job.ExpectAllWell();
      job.ExpectExactPayload();
    }
  }
}

TEST_P(LevelsTest, AbsentRanksWeightsUnequalRowsAndFreeRunningLayers) {
  for (const Machines& machines : Topologies()) {
    for (const auto& [weighted, scheme] : {std::pair(false, kFactorSchemes[0]), std::pair(true, kFactorSchemes[0]),
                                           std::pair(true, kFactorSchemes[1])}) {
      SCOPED_TRACE(NameOf(machines) + (weighted ? ", weighted, " : ", ") + std::string(plan::NameOf(scheme)));
      JobOptions options = OddJob(machines);
      options.lockstep = false;
      options.gradients = {.seed = 3, .absent = 0.4, .max_rows = 40, .zeros = weighted ? 0.5 : 0, .weighted = weighted};
      if (weighted) options.node.strategy.zero_compression = plan::ZeroCompression::kAlways;
      options.node.planning.forced["fc1"] = scheme;
      options.on_device = weighted;
      options.max_compute = std::chrono::microseconds(world_->is_virtual() ? 500 : 0);
      const std::unique_ptr<World> world = GetParam().make();
      Job job(*world, options);
      ASSERT_TRUE(job.Run());
      job.ExpectAllWell();
    }
  }
}

// Two lanes, and two workers that lead nothing, whose factors go as those of the others do.
TEST_P(LevelsTest, OneHostMayHaveMoreWorkersThanLead) {
  JobOptions options = OddJob(Machines(plan::kMostLeaders + 2, "a"));
  options.steps = 4;
  options.node.final_plan_step = 2;
  options.node.lanes = 2;
  options.node.planning.forced["fc1"] = plan::Scheme::kFactorScatter;
  options.gradients = {.seed = 7, .absent = 0.2, .weighted = true};
  Job job(*world_, options);
  ASSERT_TRUE(job.Run());
  job.ExpectAllWell();
  job.ExpectExactPayload();
}

TEST_P(LevelsTest, LargeLayersMoveInStretchesAndGradientsMayLieOnDevices) {
  for (const auto& [on_device, registers, in_parts, lanes] :
       {std::tuple(false, false, false, 1), std::tuple(true, true, false, 1), std::tuple(true, false, false, 1),
        std::tuple(false, false, true, 2)}) {
    JobOptions options = OddJob({"a", "a", "b", "b"});
    options.node.lanes = static_cast<std::uint16_t>(lanes);
    options.steps = 4;
    options.on_device = on_device;
    options.device_registers = registers;
    options.in_parts = in_parts;
    options.layers = InForwardOrder(
        {Dense("large", 700'001), FullyConnected("fc", 301, 1009), Dense("small", 5)});
    options.node.planning.forced = {{"fc", plan::Scheme::kFactorBroadcast}};
    options.gradients.max_rows = 500;  // more bytes than the dense gradient's
    options.node.strategy.flow = {};
    options.node.strategy.flow_is_fixed = false;
    options.node.probe_bytes = 1 << 20;
    const std::unique_ptr<World> world = GetParam().make();
    Job job(*world, options);
    ASSERT_TRUE(job.Run());
    job.ExpectAllWell();
    job.ExpectExactPayload();
  }
}

// They copy into the memory and out of it themselves, and processors only add.
TEST_P(LevelsTest, NothingIsCopiedOnTheHostWhereDevicesTakeItsMemory) {
  for (const bool registers : {true, false}) {
    JobOptions options = OddJob({"a", "a", "b", "b", "b"});
    options.steps = 6;
    options.on_device = true;
    options.device_registers = registers;
    options.node.planning.forced = {{"fc1", plan::Scheme::kKeyValue}, {"fc2", plan::Scheme::kFactorBroadcast}};
    const std::unique_ptr<World> world = GetParam().make();
    Job job(*world, options);
    ASSERT_TRUE(job.Run());
    job.ExpectAllWell();
    for (std::size_t i = 0; i < options.layers.size(); ++i) {
      const plan::LayerSpec& spec = options.layers[i];
      if (spec.is_table()) continue;
      SCOPED_TRACE(spec.name);
      const auto moved = [&](std::uint16_t member) { return job.outcome(MemberId(member)).local_bytes[i]; };
      EXPECT_EQ(moved(4) == 0, registers) << "leads nothing";
      if (spec.name == "fc2") continue;  // whose factors are put behind one another
      EXPECT_EQ(moved(0) + moved(1), options.steps * (registers ? 1 : 4) * spec.bytes());
      EXPECT_EQ(moved(2) + moved(3), options.steps * (registers ? 2 : 5) * spec.bytes());
    }
  }
}

// What crosses is what two workers exchange, at those of a host's workers that lead the layer; rows of tables are not summed.
TEST_P(LevelsTest, EachHostsBytesCrossTheNetworkOnce) {
  JobOptions options = OddJob({"a", "a", "b", "b", "b"});
  options.layers.push_back(Dense("large", 100'001));
  options.node.planning.forced["fc1"] = plan::Scheme::kKeyValue;
  options.node.planning.forced["fc2"] = plan::Scheme::kKeyValue;
  Job job(*world_, options);
  ASSERT_TRUE(job.Run());
  job.ExpectAllWell();
  job.ExpectExactPayload();
  const auto slices = plan::AssignSlices(options.layers, 2);
  const auto sent = [&](std::uint16_t member, std::size_t layer) {
    return job.outcome(MemberId(member)).gradients[layer].sent.payload_bytes;
  };
  std::vector<std::uint64_t> led(2, 0);  // layers, by leader
  for (std::size_t i = 0; i < options.layers.size(); ++i) {
    const plan::LayerSpec& spec = options.layers[i];
    if (spec.is_table()) continue;
    const plan::LayerPayload two = plan::KeyValuePayload(slices[i], spec.dtype, 2, 0);
    EXPECT_EQ(sent(0, i) + sent(1, i), options.steps * two.workers[0].sent);
    EXPECT_EQ(sent(2, i) + sent(3, i), options.steps * two.workers[1].sent);
    EXPECT_EQ(sent(4, i), 0u) << "the third of its host";
    // In and out of the memory; of what they lead, the leaders of two read one share, those of three two, and copy the mean.
    const auto moved = [&](std::uint16_t member) { return job.outcome(MemberId(member)).local_bytes[i]; };
    EXPECT_EQ(moved(4), options.steps * 2 * spec.bytes());
    EXPECT_EQ(moved(0) + moved(1), options.steps * 4 * spec.bytes());
    EXPECT_EQ(moved(2) + moved(3), options.steps * 5 * spec.bytes());
    for (std::uint16_t leader = 0; leader < 2; ++leader) led[leader] += sent(leader, i) > 0;
    if (spec.name == "large") {
      EXPECT_NEAR(static_cast<double>(sent(0, i)), static_cast<double>(sent(1, i)), 256.0 * static_cast<double>(options.steps));
    }
  }
  EXPECT_THAT(led, Each(::testing::Gt(1u)));
}

// The oracles, which the products of the tests above equal bit for bit, compared with each other.
void ExpectRoundingsOnly(const Machines& machines, bool weighted) {
  const std::vector<plan::LayerSpec> layers = {Dense("dense", 5000), FullyConnected("fc", 31, 17)};
  const auto engine = factors::MakeBlasEngine(1);
  GradientOptions options{.seed = 9, .ranks = static_cast<std::uint16_t>(machines.size()), .weighted = weighted};
  Gradients flat(options, layers);
  options.host_of_rank = plan::HostOfRank(machines, plan::Levels::kHost);
  Gradients levels(options, layers);
  for (const plan::Scheme scheme : {plan::Scheme::kKeyValue, plan::Scheme::kFactorBroadcast}) {
    const LayerId layer(scheme == plan::Scheme::kKeyValue ? 0 : 1);
    const ByteBuffer& a = flat.Mean(layer, Step(0), scheme, *engine);
    const ByteBuffer& b = levels.Mean(layer, Step(0), scheme, *engine);
    const auto* x = reinterpret_cast<const float*>(a.data());
    const auto* y = reinterpret_cast<const float*>(b.data());
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < a.size() / sizeof(float); ++i) {
      difference += std::pow(double{x[i]} - double{y[i]}, 2);
      size += std::pow(double{x[i]}, 2);
    }
    EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(size));
    const bool by_host = std::is_sorted(options.host_of_rank.begin(), options.host_of_rank.end());
    if (scheme == plan::Scheme::kFactorBroadcast && by_host) {
      EXPECT_EQ(a, b) << "one product of the same rows in the same order";
    }
  }
}

TEST(Levels, DifferFromFlatWorkersByRoundingsOnly) {
  for (const Machines& machines : Topologies()) {
    for (const bool weighted : {false, true}) {
      SCOPED_TRACE(NameOf(machines) + (weighted ? ", weighted" : ""));
      ExpectRoundingsOnly(machines, weighted);
    }
  }
}

TEST_P(LevelsTest, WhoDoesNotWantLevelsStaysFlat) {
  for (const plan::Levels levels : {plan::Levels::kFlat, plan::Levels::kAuto}) {
    JobOptions options = OddJob({"a", "a", "a"});  // auto: one host has no network to spare
    options.node.levels = levels;
    const std::unique_ptr<World> world = GetParam().make();
    Job job(*world, options);
    ASSERT_TRUE(job.Run());
    job.ExpectAllWell();
    job.ExpectExactPayload();
    EXPECT_TRUE(job.outcome(MemberId(0)).provisional->cluster.host_of_rank.empty());
    EXPECT_THAT(job.outcome(MemberId(1)).local_bytes, Each(0u));
  }
}

// Whoever dies, leader, follower or a worker alone, is blamed by all others, and nobody waits.
TEST_P(LevelsTest, AKilledWorkerIsBlamedByAll) {
  const Machines machines = {"a", "a", "b", "b", "c"};
  for (std::uint16_t victim = 0; victim < machines.size(); ++victim) {
    for (const std::uint64_t after : {std::uint64_t{1}, std::uint64_t{77}}) {
      SCOPED_TRACE("victim " + std::to_string(victim) + " after " + std::to_string(after));
      JobOptions options = OddJob(machines);
      options.steps = 100'000;
      options.lockstep = false;
      options.in_parts = after > 1;
      const std::unique_ptr<World> world = GetParam().make();
      Job job(*world, options);
      job.Start();
      ASSERT_TRUE(world->Await(job.landed(), after));
      job.Kill(MemberId(victim));
      ASSERT_TRUE(job.AwaitEnd());
      job.ExpectAllBlame(victim);
    }
  }
}

TEST_P(LevelsTest, NothingIsLeftInTheFileSystem) {
  const auto entries = [] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  };
  const std::vector<std::string> before = entries();
  JobOptions options = OddJob({"a", "a", "b", "b"});
  options.steps = 100'000;
  Job job(*world_, options);
  job.Start();
  ASSERT_TRUE(world_->Await(job.landed(), 50));
  EXPECT_EQ(entries(), before);
  job.Kill(MemberId(1));
  ASSERT_TRUE(job.AwaitEnd());
}

INSTANTIATE_TEST_SUITE_P(Worlds, LevelsTest, ::testing::Values(kInproc, kPlain, kVirtual),
                         NameOfWorld);

}  // namespace
}  // namespace poseidon::integration
