// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "poseidon/base/thread_executor.h"
#include "poseidon/sim/simulation.h"
#include "tests/conformance/executor_conformance.h"

namespace poseidon::conformance {
namespace {

class ThreadWorld final : public ExecutorWorld {
 public:
  std::unique_ptr<Executor> Make() override { return std::make_unique<ThreadExecutor>("test"); }
};

class VirtualWorld : public ExecutorWorld {
 public:
  explicit VirtualWorld(sim::SimulationOptions options) : simulation_(options) {}
  std::unique_ptr<Executor> Make() override {
    return simulation_.MakeExecutor(simulation_.AddProcess("test"));
  }
  bool Await(const Tally& tally, std::uint64_t count) override {
    return simulation_.RunUntil([&] { return tally.value() >= count; }, std::chrono::minutes(10));
  }

 private:
  sim::Simulation simulation_;
};

INSTANTIATE_TEST_SUITE_P(
    Base, ExecutorConformance,
    testing::Values(ExecutorCase{"thread",
                                 [] { return std::unique_ptr<ExecutorWorld>(new ThreadWorld); }}),
    testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Sim, ExecutorConformance,
    testing::Values(
        ExecutorCase{"virtual",
                     [] { return std::unique_ptr<ExecutorWorld>(new VirtualWorld({.seed = 1})); }},
        ExecutorCase{"virtual_with_jitter",
                     [] {
                       return std::unique_ptr<ExecutorWorld>(new VirtualWorld(
                           {.seed = 2, .max_jitter = std::chrono::milliseconds(50)}));
                     }}),
    testing::PrintToStringParamName());

}  // namespace
}  // namespace poseidon::conformance
