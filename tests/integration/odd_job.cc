// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/odd_job.h"

namespace poseidon::integration {

using transport::tcp::Security;

std::unique_ptr<World> MakeVirtualWorld() {
  VirtualOptions options;
  options.simulation.max_jitter = std::chrono::microseconds(20);
  options.network.cut = sim::Cut::kRandomSegments;
  options.network.max_jitter = std::chrono::microseconds(100);
  options.rate = 125e6;
  return std::make_unique<VirtualWorld>(options);
}

constinit const WorldCase kInproc{"Inproc", &MakeInprocWorld};
constinit const WorldCase kTls{"Tls", [] { return MakeTcpWorld(Security::Mode::kTls); }};
constinit const WorldCase kPlain{"Plain", [] { return MakeTcpWorld(Security::Mode::kPlain); }};
constinit const WorldCase kVirtual{"Virtual", &MakeVirtualWorld};

std::string NameOfWorld(const ::testing::TestParamInfo<WorldCase>& info) { return info.param.name; }

std::vector<plan::LayerSpec> OddLayers() {
  return InForwardOrder({Dense("one", 1), Dense("odd", 1023), Dense("prime", 4099, DType::kF64),
                         FullyConnected("fc1", 31, 17), Dense("page", 4097),
                         FullyConnected("fc2", 40, 30, false, DType::kF64), Dense("few", 3), Table("words", 23, 7),
                         Table("tags", 9, 5, DType::kF64)});
}

JobOptions OddJob(std::uint16_t workers, std::uint16_t servers) {
  JobOptions options;
  options.workers = workers;
  options.servers = servers;
  options.layers = OddLayers();
  options.node.probe_bytes = 0;
  options.node.strategy.flow = {.chunk_bytes = 3001, .write_bytes = 9000};
  options.node.strategy.flow_is_fixed = true;
  return options;
}

}  // namespace poseidon::integration
