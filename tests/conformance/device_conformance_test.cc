// SPDX-License-Identifier: Apache-2.0
// The fake device where it is used: its copies on one executor, its engine driven from another, on
// threads and in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <vector>

#include "poseidon/base/random.h"
#include "poseidon/base/thread_executor.h"
#include "tests/shared/fake_device.h"
#include "poseidon/sim/simulation.h"
#include "tests/conformance/tally.h"

namespace poseidon::conformance {
namespace {

using device::CopyTimes;
using device::DeviceSpan;
using device::Event;
using device::FakeDevice;
using device::HostBuffer;

class Machine {
 public:
  virtual ~Machine() = default;
  virtual Executor& io() = 0;
  virtual Executor& compute() = 0;
  virtual bool Await(const Tally& tally, std::uint64_t count) = 0;
};

class ThreadMachine final : public Machine {
 public:
  Executor& io() override { return io_; }
  Executor& compute() override { return compute_; }
  bool Await(const Tally& tally, std::uint64_t count) override { return tally.BlockUntil(count); }

 private:
  ThreadExecutor io_{"io"};
  ThreadExecutor compute_{"compute"};
};

class VirtualMachine final : public Machine {
 public:
  Executor& io() override { return *io_; }
  Executor& compute() override { return *compute_; }
  bool Await(const Tally& tally, std::uint64_t count) override {
    return simulation_.RunUntil([&] { return tally.value() >= count; }, std::chrono::hours(1));
  }

 private:
  sim::Simulation simulation_{{.seed = 9, .max_jitter = std::chrono::microseconds(50)}};
  const sim::ProcessId process_ = simulation_.AddProcess("worker");
  std::unique_ptr<Executor> io_ = simulation_.MakeExecutor(process_);
  std::unique_ptr<Executor> compute_ = simulation_.MakeExecutor(process_);
};

struct MachineCase {
  const char* name;
  std::unique_ptr<Machine> (*make)();
  friend std::ostream& operator<<(std::ostream& out, const MachineCase& c) { return out << c.name; }
};
class FakeDeviceConformance : public testing::TestWithParam<MachineCase> {};

INSTANTIATE_TEST_SUITE_P(
    Machines, FakeDeviceConformance,
    testing::Values(
        MachineCase{"threads", [] { return std::unique_ptr<Machine>(new ThreadMachine); }},
        MachineCase{"virtual", [] { return std::unique_ptr<Machine>(new VirtualMachine); }}),
    testing::PrintToStringParamName());

// One layer's way: the engine writes a gradient, it is staged, changed on the host as a network
// would, copied back, and the engine sees the result. Layers overlap.
TEST_P(FakeDeviceConformance, StagedGradientsComeBackChanged) {
  constexpr std::size_t kLayers = 20;
  const auto machine = GetParam().make();
  Tally finished;
  struct Layer {
    DeviceSpan gradient;
    HostBuffer staging;
    bool right = false;
  };
  std::vector<Layer> layers(kLayers);
  auto fake = std::make_unique<FakeDevice>(
      machine->io(), device::FakeDeviceOptions{.copy_bytes_per_second = 1e9});
  FakeDevice& gpu = *fake;
  Random sizes(4);
  for (Layer& layer : layers) {
    const std::size_t size = sizes.Between(1, 30'000);
    layer.gradient = *gpu.Allocate(size);
    layer.staging = *gpu.AllocateHost(size);
  }
  const auto expected = [](std::size_t layer) { return static_cast<std::byte>(layer + 1); };
  machine->compute().Post([&] {
    for (std::size_t i = kLayers; i-- > 0;) {  // backward
      const Event ready = gpu.Launch(std::chrono::microseconds(20), [&, i] {
        const MutableBytes inside = gpu.InKernel(layers[i].gradient);
        std::fill(inside.begin(), inside.end(), expected(i));
      });
      gpu.CopyToHost(
          layers[i].gradient, layers[i].staging.bytes(), ready, [&, i](const Result<CopyTimes>& staged) {
            EXPECT_TRUE(staged.ok());
            EXPECT_TRUE(machine->io().OnExecutor());
            const MutableBytes bytes = layers[i].staging.bytes();
            for (std::byte& byte : bytes) byte ^= std::byte{0xff};
            gpu.CopyFromHost(bytes, layers[i].gradient, [&, i](const Result<CopyTimes>& back) {
              EXPECT_TRUE(back.ok());
              machine->compute().Post([&, i] {
                gpu.Launch(Duration::zero(), [&, i] {
                  const MutableBytes inside = gpu.InKernel(layers[i].gradient);
                  layers[i].right = std::all_of(inside.begin(), inside.end(), [&](std::byte b) {
                    return b == (expected(i) ^ std::byte{0xff});
                  });
                  finished.Add();
                });
              });
            });
          });
    }
  });
  EXPECT_TRUE(machine->Await(finished, kLayers));
  for (const Layer& layer : layers) EXPECT_TRUE(layer.right);
  Tally closed;
  machine->io().Post([&] {
    fake.reset();
    closed.Add();
  });
  EXPECT_TRUE(machine->Await(closed, 1));
}

// A gradient copied in parts behind one event: each part is there when its copy says so, and they end in order.
TEST_P(FakeDeviceConformance, PartsOfASpanAreCopiedInOrderBehindOneEvent) {
  constexpr std::size_t kPart = 1000;
  constexpr std::size_t kParts = 7;
  constexpr std::size_t kBytes = kPart * kParts - 3;
  const auto machine = GetParam().make();
  auto fake = std::make_unique<FakeDevice>(machine->io(), device::FakeDeviceOptions{.copy_bytes_per_second = 1e9});
  FakeDevice& gpu = *fake;
  const DeviceSpan span = *gpu.Allocate(kBytes);
  const HostBuffer staging = *gpu.AllocateHost(kBytes);
  Tally copied;
  machine->compute().Post([&] {
    const Event ready = gpu.Launch(std::chrono::microseconds(50), [&] {
      const MutableBytes inside = gpu.InKernel(span);
      std::fill(inside.begin(), inside.end(), std::byte{0x5a});
    });
    for (std::size_t i = 0; i < kParts; ++i) {
      const std::size_t size = std::min(kPart, kBytes - i * kPart);
      const MutableBytes into = staging.bytes().subspan(i * kPart, size);
      gpu.CopyToHost({span.address + i * kPart, size}, into, ready, [&, i, into](const Result<CopyTimes>& times) {
        EXPECT_TRUE(times.ok());
        EXPECT_EQ(copied.value(), i);
        EXPECT_TRUE(std::all_of(into.begin(), into.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
        copied.Add();
      });
    }
  });
  EXPECT_TRUE(machine->Await(copied, kParts));
  Tally closed;
  machine->io().Post([&] {
    fake.reset();
    closed.Add();
  });
  EXPECT_TRUE(machine->Await(closed, 1));
}

TEST_P(FakeDeviceConformance, ClosingCompletesEachCopyOnce) {
  const auto machine = GetParam().make();
  Tally fired;
  ByteBuffer host(1000);
  auto fake = std::make_unique<FakeDevice>(machine->io());
  const DeviceSpan span = *fake->Allocate(1000);
  machine->compute().Post([&, gpu = fake.get()] {
    const Event never = gpu->Launch(std::chrono::hours(1), [] { ADD_FAILURE(); });
    for (int i = 0; i < 10; ++i) {
      gpu->CopyToHost(span, host, never, [&](const Result<CopyTimes>& copied) {
        EXPECT_EQ(copied.status().code(), StatusCode::kUnavailable);
        fired.Add();
      });
    }
    machine->io().Post([&] { fake.reset(); });
  });
  EXPECT_TRUE(machine->Await(fired, 10));
  Tally settled;
  machine->io().Post([&] { settled.Add(); });
  EXPECT_TRUE(machine->Await(settled, 1));
  EXPECT_EQ(fired.value(), 10u);
}

}  // namespace
}  // namespace poseidon::conformance
