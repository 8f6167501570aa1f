// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "poseidon/sim/simulation.h"
#include "poseidon/sim/virtual_network.h"
#include "tests/conformance/transport_conformance.h"

namespace poseidon::conformance {
namespace {

using sim::Cut;
using transport::Address;

// Every participant is a process on a host of its own.
class SimWorld final : public TransportWorld {
 public:
  SimWorld(std::size_t participants, sim::SimulationOptions simulation, sim::NetworkOptions network,
           double rate)
      : simulation_(simulation), network_(simulation_, network) {
    network_.AddHost({.name = "deserted"});
    for (std::size_t i = 0; i < participants; ++i) {
      const sim::HostId host =
          network_.AddHost({.name = "h" + std::to_string(i), .rate_out = rate, .rate_in = rate});
      processes_.push_back(simulation_.AddProcess("p" + std::to_string(i)));
      auto executor = simulation_.MakeExecutor(processes_.back());
      auto context = network_.MakeContext(host, processes_.back(), *executor);
      Add(std::move(executor), std::move(context));
    }
  }
  Address listen_address(std::size_t i) override { return {"h" + std::to_string(i), 0}; }
  Address deserted_address() override { return {"deserted", 1}; }
  bool Await(const Tally& tally, std::uint64_t count) override {
    return simulation_.RunUntil([&] { return tally.value() >= count; }, std::chrono::hours(1));
  }
  bool Kill(std::size_t i) override {
    simulation_.Kill(processes_.at(i));
    MarkKilled(i);
    return true;
  }

 private:
  sim::Simulation simulation_;
  sim::VirtualNetwork network_;
  std::vector<sim::ProcessId> processes_;
};

std::unique_ptr<TransportWorld> Plain(std::size_t n) {
  return std::make_unique<SimWorld>(n, sim::SimulationOptions{.seed = 1}, sim::NetworkOptions{}, 0);
}
std::unique_ptr<TransportWorld> Gigabit(std::size_t n) {
  return std::make_unique<SimWorld>(n, sim::SimulationOptions{.seed = 2}, sim::NetworkOptions{},
                                    125e6);
}
std::unique_ptr<TransportWorld> Rough(std::size_t n) {
  return std::make_unique<SimWorld>(
      n, sim::SimulationOptions{.seed = 3, .max_jitter = std::chrono::milliseconds(1)},
      sim::NetworkOptions{.seed = 4,
                          .max_jitter = std::chrono::milliseconds(5),
                          .send_buffer_bytes = 3000,
                          .receive_buffer_bytes = 1500,
                          .segment_bytes = 700,
                          .cut = Cut::kRandomSegments},
      1e6);
}
std::unique_ptr<TransportWorld> SingleBytes(std::size_t n) {
  return std::make_unique<SimWorld>(
      n, sim::SimulationOptions{.seed = 5, .max_jitter = std::chrono::microseconds(10)},
      sim::NetworkOptions{.seed = 6,
                          .max_jitter = std::chrono::microseconds(20),
                          .send_buffer_bytes = 1000,
                          .receive_buffer_bytes = 1000,
                          .cut = Cut::kSingleBytes},
      0);
}

INSTANTIATE_TEST_SUITE_P(
    Sim, TransportConformance,
    testing::Values(TransportCase{.name = "plain", .make = Plain, .many_bytes = 4 << 20},
                    TransportCase{.name = "gigabit", .make = Gigabit, .many_bytes = 4 << 20},
                    TransportCase{.name = "rough", .make = Rough, .many_bytes = 200'000},
                    TransportCase{.name = "single_bytes", .make = SingleBytes, .many_bytes = 16'000}),
    testing::PrintToStringParamName());

}  // namespace
}  // namespace poseidon::conformance
