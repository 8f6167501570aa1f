// SPDX-License-Identifier: Apache-2.0
// The whole core in three worlds: threads over memory, threads over sockets, virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "poseidon/sfb/blas_engine.h"
#include "tests/integration/job.h"

namespace poseidon::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using transport::tcp::Security;

struct WorldCase {
  const char* name;
  std::unique_ptr<World> (*make)();
  friend std::ostream& operator<<(std::ostream& out, const WorldCase& c) { return out << c.name; }
};

std::unique_ptr<World> MakeVirtualWorld() {
  VirtualOptions options;
  options.simulation.max_jitter = std::chrono::microseconds(20);
  options.network.cut = sim::Cut::kRandomSegments;
  options.network.max_jitter = std::chrono::microseconds(100);
  options.rate = 125e6;
  return std::make_unique<VirtualWorld>(options);
}

const WorldCase kInproc{"Inproc", &MakeInprocWorld};
const WorldCase kTls{"Tls", [] { return MakeTcpWorld(Security::Mode::kTls); }};
const WorldCase kAuth{"Auth", [] { return MakeTcpWorld(Security::Mode::kAuth); }};
const WorldCase kVirtual{"Virtual", &MakeVirtualWorld};

// Sizes that divide nothing, numbers of both widths, with and without factors.
std::vector<plan::LayerSpec> OddLayers() {
  return InForwardOrder({Dense("one", 1), Dense("odd", 1023), Dense("prime", 4099, DType::kF64),
                         FullyConnected("fc1", 31, 17), Dense("page", 4097),
                         FullyConnected("fc2", 40, 30, false, DType::kF64), Dense("few", 3)});
}

plan::PlanOptions Forced(std::map<std::string, plan::Scheme> schemes) {
  plan::PlanOptions options;
  options.forced = std::move(schemes);
  return options;
}

JobOptions OddJob(std::uint16_t workers, std::uint16_t servers) {
  JobOptions options;
  options.workers = workers;
  options.servers = servers;
  options.layers = OddLayers();
  options.node.probe_bytes = 0;
  options.node.channel = {.chunk_bytes = 3001, .write_bytes = 9000};
  return options;
}

class CoreTest : public ::testing::TestWithParam<WorldCase> {
 protected:
  std::unique_ptr<World> world_ = GetParam().make();
};

std::string NameOfWorld(const ::testing::TestParamInfo<WorldCase>& info) { return info.param.name; }

// Fifty steps, every result of every layer at every rank equal to the oracle's bits; the switch
// from the provisional to the final plan at step 10 changes fc1 from dense to factors.
TEST_P(CoreTest, ReplicasEqualTheOracleBitForBit) {
  for (const auto& [workers, servers] : std::vector<std::pair<std::uint16_t, std::uint16_t>>{
           {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {1, 1}, {2, 3}, {3, 1}, {3, 2}, {4, 3}}) {
    SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(servers) + " servers");
    JobOptions options = OddJob(workers, servers);
    options.node.planning = Forced({{"fc2", plan::Scheme::kFactorBroadcast}});
    options.gradients.seed = workers * 10u + servers;
    const std::unique_ptr<World> world = GetParam().make();
    Job job(*world, options);
    ASSERT_TRUE(job.Run());
    job.ExpectAllWell();
    job.ExpectExactPayload();
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, CoreTest, ::testing::Values(kInproc, kTls, kAuth, kVirtual),
                         NameOfWorld);

}  // namespace
}  // namespace poseidon::integration
