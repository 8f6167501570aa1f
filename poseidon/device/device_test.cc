// SPDX-License-Identifier: Apache-2.0
#include "poseidon/device/device.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "poseidon/base/random.h"
#include "poseidon/base/task_queue.h"
#include "poseidon/device/fake_device.h"
#include "poseidon/device/host_device.h"

namespace poseidon::device {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Runs what is due, in order, when the test says so. (The simulator's executor is on a
// neighbouring rung; tests/conformance runs the fake device on it and on threads.)
class ManualExecutor final : public Executor {
 public:
  void Post(Task task) override { queue_.Post(now_, next_++, std::move(task)); }
  TimerId PostAfter(Duration delay, Task task) override {
    queue_.PostAt(now_ + delay, next_, std::move(task));
    return next_++;
  }
  bool Cancel(TimerId timer) override { return static_cast<bool>(queue_.Cancel(timer)); }
  TimePoint now() const override { return now_; }
  bool OnExecutor() const override { return running_; }

  void Run() {
    while (const auto next = queue_.Next()) {
      now_ = std::max(now_, next->due);
      running_ = true;
      queue_.Pop()();
      running_ = false;
    }
  }

 private:
  TaskQueue queue_;
  TimePoint now_;
  std::uint64_t next_ = 1;
  bool running_ = false;
};

ByteBuffer RandomBytes(std::uint64_t seed, std::size_t size) {
  Random random(seed);
  ByteBuffer bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}
bool Same(ConstBytes a, ConstBytes b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}
bool IsPoison(ConstBytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0xdb}; });
}

// --- what holds for every device ---

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
    device.CopyToHost(source, staging.bytes(), nullptr, [&](Status status) {
      EXPECT_TRUE(status.ok());
      EXPECT_TRUE(bench_->executor.OnExecutor());
      EXPECT_TRUE(Same(staging.bytes(), content));
      ++done;
      device.CopyFromHost(staging.bytes(), target, [&](Status back) {
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
                      [&order, mark](Status) { order.push_back(mark); });
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
    bench_->device().CopyToHost(span, in, nullptr, [&](Status) { ++fired; });
    bench_->device().CopyFromHost(out, span, [&](Status) { ++fired; });
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

// --- what the fake is for ---

class FakeDeviceTest : public testing::Test {
 protected:
  ManualExecutor executor_;
  FakeDevice device_{executor_, {.memory_bytes = 1 << 20,
                                 .copy_latency = microseconds(10),
                                 .copy_bytes_per_second = 1e9}};
};

TEST_F(FakeDeviceTest, CopiesTakeTheirTimeAndShowNothingEarlier) {
  const DeviceSpan span = *device_.Allocate(1000);
  const ByteBuffer content = RandomBytes(1, 1000);
  ByteBuffer host(1000);
  std::vector<TimePoint> ends;
  device_.CopyFromHost(content, span, [&](Status) {
    ends.push_back(executor_.now());
    EXPECT_TRUE(Same(device_.InKernel(span), content));
    device_.CopyToHost(span, host, nullptr, [&](Status) { ends.push_back(executor_.now()); });
    EXPECT_TRUE(IsPoison(host));
  });
  EXPECT_TRUE(IsPoison(device_.InKernel(span)));
  executor_.PostAfter(microseconds(10), [&] { EXPECT_TRUE(IsPoison(device_.InKernel(span))); });
  executor_.PostAfter(microseconds(20), [&] { EXPECT_TRUE(IsPoison(host)); });
  executor_.Run();
  EXPECT_EQ(ends, (std::vector<TimePoint>{{microseconds(11)}, {microseconds(22)}}));
  EXPECT_EQ(host, content);
}

TEST_F(FakeDeviceTest, ACopyWaitsForItsEventAndHoldsUpThoseBehindIt) {
  const DeviceSpan gradient = *device_.Allocate(100);
  const DeviceSpan other = *device_.Allocate(100);
  ByteBuffer first(100);
  ByteBuffer second(100);
  std::string order;
  const Event earlier = device_.Launch(milliseconds(1), [&] { order += 'k'; });
  const Event ready = device_.Launch(milliseconds(2), [&] {
    order += 'K';
    const MutableBytes inside = device_.InKernel(gradient);
    std::fill(inside.begin(), inside.end(), std::byte{7});
  });
  device_.CopyToHost(gradient, first, ready, [&](Status) {
    order += '1';
    EXPECT_EQ(first, ByteBuffer(100, std::byte{7}));
    EXPECT_GT(executor_.now(), TimePoint{milliseconds(3)});
  });
  device_.CopyToHost(other, second, nullptr, [&](Status) { order += '2'; });
  device_.CopyFromHost(second, other, [&](Status) { order += 'f'; });  // the other direction
  executor_.Run();
  EXPECT_EQ(order, "fkK12");
  // An event that has happened holds up nobody.
  device_.CopyToHost(gradient, first, earlier, [&](Status) { order += '3'; });
  executor_.Run();
  EXPECT_EQ(order, "fkK123");
}

// Until the event the kernel may be writing: who reads, reads half of it, and races with another thread's kernel.
TEST_F(FakeDeviceTest, ACopyReadsNothingBeforeItsEvent) {
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const DeviceSpan memory = *device_.Allocate(2 * page);
  const std::size_t into_page = reinterpret_cast<std::uintptr_t>(device_.InKernel(memory).data()) % page;
  const DeviceSpan gradient{memory.address + (page - into_page), page};
  std::byte* const inside = device_.InKernel(gradient).data();
  ASSERT_EQ(::mprotect(inside, page, PROT_NONE), 0);
  const Event ready = device_.Launch(milliseconds(1), [&] {
    ASSERT_EQ(::mprotect(inside, page, PROT_READ | PROT_WRITE), 0);
    std::fill_n(inside, page, std::byte{7});
  });
  ByteBuffer host(page);
  device_.CopyToHost(gradient, host, ready, [](const Status& status) { EXPECT_TRUE(status.ok()); });
  executor_.Run();
  EXPECT_EQ(host, ByteBuffer(page, std::byte{7}));
}

TEST_F(FakeDeviceTest, AFailedCopyLeavesPoison) {
  const DeviceSpan span = *device_.Allocate(10);
  ByteBuffer host(10);
  Status status;
  device_.FailNextCopy(Internal("the device fell off the bus"));
  device_.CopyToHost(span, host, nullptr, [&](Status s) { status = std::move(s); });
  executor_.Run();
  EXPECT_EQ(status.message(), "the device fell off the bus");
  EXPECT_TRUE(IsPoison(host));
  device_.CopyToHost(span, host, nullptr, [&](Status s) { status = std::move(s); });
  executor_.Run();
  EXPECT_TRUE(status.ok());
}

TEST_F(FakeDeviceTest, AllocationsDoNotOverlapAndComeBack) {
  Random random(3);
  std::vector<DeviceSpan> spans;
  for (int round = 0; round < 2000; ++round) {
    if (spans.empty() || random.Chance(0.6)) {
      const auto span = device_.Allocate(random.Below(20'000));
      if (!span.ok()) continue;
      for (const DeviceSpan& other : spans) {
        EXPECT_TRUE(span->address + span->size <= other.address ||
                    other.address + other.size <= span->address);
        EXPECT_NE(span->address, other.address);
      }
      spans.push_back(*span);
    } else {
      std::swap(spans[random.Below(spans.size())], spans.back());
      device_.Free(spans.back());
      spans.pop_back();
    }
  }
  for (const DeviceSpan& span : spans) device_.Free(span);
  EXPECT_TRUE(device_.Allocate(1 << 20).ok()) << "all of it is free again";
  EXPECT_EQ(device_.Allocate(1).status().code(), StatusCode::kResourceExhausted);
}

using FakeDeviceDeathTest = FakeDeviceTest;

TEST_F(FakeDeviceDeathTest, TheHostCannotTouchDeviceMemory) {
  const DeviceSpan span = *device_.Allocate(100);
  volatile std::byte* const address = span.address;
  EXPECT_DEATH(static_cast<void>(*address), "");
  EXPECT_DEATH(*address = std::byte{1}, "");
}

TEST_F(FakeDeviceDeathTest, LentMemoryMustNotChange) {
  const DeviceSpan span = *device_.Allocate(100);
  ByteBuffer host(100);
  EXPECT_DEATH(
      {
        device_.CopyFromHost(host, span, [](Status) {});
        host[50] = std::byte{1};
        executor_.Run();
      },
      "memory changed while it was lent");
  EXPECT_DEATH(
      {
        device_.CopyToHost(span, host, nullptr, [](Status) {});
        device_.InKernel(span)[50] = std::byte{1};
        executor_.Run();
      },
      "memory changed while it was lent");
}

TEST_F(FakeDeviceDeathTest, SpansLieWithinAllocations) {
  const DeviceSpan span = *device_.Allocate(100);
  EXPECT_DEATH(device_.InKernel({span.address + 1, 100}), "within one allocation");
  EXPECT_DEATH(device_.InKernel({span.address + 300, 1}), "within one allocation");
  std::byte foreign{};
  EXPECT_DEATH(device_.InKernel({&foreign, 1}), "one of this device's");
  device_.Free(span);
  EXPECT_DEATH(device_.InKernel(span), "within one allocation");
}

}  // namespace
}  // namespace poseidon::device
