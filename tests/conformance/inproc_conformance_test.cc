// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "poseidon/base/thread_executor.h"
#include "poseidon/sim/simulation.h"
#include "poseidon/transport/inproc/inproc_network.h"
#include "tests/conformance/transport_conformance.h"

namespace poseidon::conformance {
namespace {

using transport::Address;
using transport::InprocNetwork;
using transport::InprocOptions;

// Every participant on a thread of its own.
class ThreadWorld final : public TransportWorld {
 public:
  ThreadWorld(std::size_t participants, InprocOptions options) : network_(options) {
    for (std::size_t i = 0; i < participants; ++i) {
      const std::string name = "p" + std::to_string(i);
      auto executor = std::make_unique<ThreadExecutor>(name);
      auto context = network_.MakeContext(*executor, name);
      Add(std::move(executor), std::move(context));
    }
  }
  Address listen_address(std::size_t i) override { return {"p" + std::to_string(i), 0}; }
  Address deserted_address() override { return {"nobody", 1}; }

 private:
  InprocNetwork network_;
};

// All in one thread, in an order that depends on the seed.
class VirtualWorld final : public TransportWorld {
 public:
  VirtualWorld(std::size_t participants, sim::SimulationOptions simulation, InprocOptions options)
      : simulation_(simulation), network_(options) {
    for (std::size_t i = 0; i < participants; ++i) {
      const std::string name = "p" + std::to_string(i);
      auto executor = simulation_.MakeExecutor(simulation_.AddProcess(name));
      auto context = network_.MakeContext(*executor, name);
      Add(std::move(executor), std::move(context));
    }
  }
  Address listen_address(std::size_t i) override { return {"p" + std::to_string(i), 0}; }
  Address deserted_address() override { return {"nobody", 1}; }
  bool Await(const Tally& tally, std::uint64_t count) override {
    return simulation_.RunUntil([&] { return tally.value() >= count; }, std::chrono::hours(1));
  }

 private:
  sim::Simulation simulation_;
  InprocNetwork network_;
};

INSTANTIATE_TEST_SUITE_P(
    Inproc, TransportConformance,
    testing::Values(
        TransportCase{.name = "threads",
                      .make =
                          [](std::size_t n) {
                            return std::unique_ptr<TransportWorld>(new ThreadWorld(n, {}));
                          },
                      .many_bytes = 4 << 20},
        TransportCase{.name = "threads_with_tiny_buffers",
                      .make =
                          [](std::size_t n) {
                            return std::unique_ptr<TransportWorld>(
                                new ThreadWorld(n, {.buffer_bytes = 1009}));
                          },
                      .many_bytes = 100'000},
        TransportCase{.name = "virtual",
                      .make =
                          [](std::size_t n) {
                            return std::unique_ptr<TransportWorld>(
                                new VirtualWorld(n, {.seed = 1}, {}));
                          },
                      .many_bytes = 4 << 20},
        TransportCase{.name = "virtual_with_jitter",
                      .make =
                          [](std::size_t n) {
                            return std::unique_ptr<TransportWorld>(new VirtualWorld(
                                n, {.seed = 2, .max_jitter = std::chrono::milliseconds(3)},
                                {.buffer_bytes = 1000}));
                          },
                      .many_bytes = 1 << 20}),
    testing::PrintToStringParamName());

}  // namespace
}  // namespace poseidon::conformance
