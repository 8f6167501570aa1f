// SPDX-License-Identifier: Apache-2.0
#include "poseidon/device/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "poseidon/device/host_device.h"
#include "tests/shared/device_bench.h"
#include "tests/shared/fake_device.h"

namespace poseidon::device {
namespace {

// A device with memory of its own kind to copy from and to.
class Bench {
 public:
  virtual ~Bench() = default;
  virtual Device& device() = 0;
  virtual DeviceSpan Make(ConstBytes content) = 0;
  virtual ByteBuffer Look(DeviceSpan span) = 0;
  virtual void DestroyDevice() = 0;
  ManualExecutor executor;
};

class HostBench final : public Bench {
 public:
  Device& device() override { return *device_; }
  DeviceSpan Make(ConstBytes content) override {
    auto& memory = memories_.emplace_back(
        std::make_unique<ByteBuffer>(content.begin(), content.end()));
    return {memory->data(), memory->size()};
  }
  ByteBuffer Look(DeviceSpan span) override { return {span.address, span.address + span.size}; }
  void DestroyDevice() override { device_.reset(); }

 private:
  std::vector<std::unique_ptr<ByteBuffer>> memories_;
  std::unique_ptr<Device> device_ = std::make_unique<HostDevice>(executor);
};

class FakeBench final : public Bench {
 public:
  Device& device() override { return *device_; }
  DeviceSpan Make(ConstBytes content) override {
    const DeviceSpan span = *device_->Allocate(content.size());
    const MutableBytes inside = device_->InKernel(span);
    std::copy(content.begin(), content.end(), inside.begin());
    return span;
  }
  ByteBuffer Look(DeviceSpan span) override {
    const MutableBytes inside = device_->InKernel(span);
    return {inside.begin(), inside.end()};
  }
  void DestroyDevice() override { device_.reset(); }

 private:
  std::unique_ptr<FakeDevice> device_ =
      std::make_unique<FakeDevice>(executor, FakeDeviceOptions{.copy_bytes_per_second = 1e9});
};

struct DeviceCase {
  const char* name;
  std::unique_ptr<Bench> (*make)();
  friend std::ostream& operator<<(std::ostream& out, const DeviceCase& c) { return out << c.name; }
};
class EveryDevice : public testing::TestWithParam<DeviceCase> {
 protected:
  std::unique_ptr<Bench> bench_ = GetParam().make();
};
INSTANTIATE_TEST_SUITE_P(
    Devices, EveryDevice,
    testing::Values(DeviceCase{"host", [] { return std::unique_ptr<Bench>(new HostBench); }},
                    DeviceCase{"fake", [] { return std::unique_ptr<Bench>(new FakeBench); }}),
    testing::PrintToStringParamName());

TEST_P(EveryDevice, CopiesThereAndBack) {
  Device& device = bench_->device();
  EXPECT_FALSE(device.name().empty());
  for (std::size_t size : {0u, 1u, 63u, 100'000u}) {
    const ByteBuffer content = RandomBytes(size + 1, size);
    const DeviceSpan source = bench_->Make(content);
    const DeviceSpan target = bench_->Make(ByteBuffer(size));
    const HostBuffer staging = *device.AllocateHost(size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(staging.bytes().data()) % 64, 0u);
    int done = 0;
    device.CopyToHost(source, staging.bytes(), nullptr, [&](const Result<CopyTimes>& copied) {
      ASSERT_TRUE(copied.ok());
      EXPECT_LE(copied->begin, copied->end);
      EXPECT_LE(copied->end, bench_->executor.now());
      EXPECT_TRUE(bench_->executor.OnExecutor());
      EXPECT_TRUE(Same(staging.bytes(), content));
      ++done;
      device.CopyFromHost(staging.bytes(), target, [&](const Result<CopyTimes>& back) {
        EXPECT_TRUE(back.ok());
        ++done;
      });
      EXPECT_EQ(done, 1) << "a completion ran inside the call";
    });
    EXPECT_EQ(done, 0) << "a completion ran inside the call";
    bench_->executor.Run();
    EXPECT_EQ(done, 2);
    EXPECT_EQ(bench_->Look(target), content);
  }
}

TEST_P(EveryDevice, CopiesOfOneDirectionEndInOrder) {
  Device& device = bench_->device();
  std::string order;
  std::vector<HostBuffer> buffers;
  // The large one first: it must not be overtaken.
  for (std::size_t size : {50'000u, 1u, 0u, 1000u}) {
    const DeviceSpan span = bench_->Make(RandomBytes(1, size));
    buffers.push_back(*device.AllocateHost(size));
    const char mark = static_cast<char>('a' + buffers.size() - 1);
    device.CopyToHost(span, buffers.back().bytes(), nullptr,
                      [&order, mark](const Result<CopyTimes>&) { order.push_back(mark); });
  }
  bench_->executor.Run();
  EXPECT_EQ(order, "abcd");
}

TEST_P(EveryDevice, DestructionCompletesWhatIsUnderWay) {
  const DeviceSpan span = bench_->Make(RandomBytes(1, 1000));
  ByteBuffer in(1000);
  const ByteBuffer out(1000);
  int fired = 0;
  for (int i = 0; i < 3; ++i) {
    bench_->device().CopyToHost(span, in, nullptr, [&](const Result<CopyTimes>&) { ++fired; });
    bench_->device().CopyFromHost(out, span, [&](const Result<CopyTimes>&) { ++fired; });
  }
  bench_->DestroyDevice();
  EXPECT_EQ(fired, 0);
  bench_->executor.Run();
  EXPECT_EQ(fired, 6);
}

TEST_P(EveryDevice, AnAbsurdStagingBufferIsRefused) {
  for (const std::size_t absurd : {std::size_t{1} << 63, SIZE_MAX}) {
    const auto buffer = bench_->device().AllocateHost(absurd);
    EXPECT_EQ(buffer.status().code(), StatusCode::kResourceExhausted);
  }
}

TEST(HostBuffer, MovesAndReleasesOnce) {
  int released = 0;
  ByteBuffer memory(4);
  {
    HostBuffer first(memory, [&](MutableBytes bytes) {
      EXPECT_EQ(bytes.data(), memory.data());
      ++released;
    });
    HostBuffer second = std::move(first);
    HostBuffer third;
    third = std::move(second);
    EXPECT_EQ(third.bytes().size(), 4u);
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace poseidon::device
