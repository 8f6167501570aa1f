// SPDX-License-Identifier: Apache-2.0
// What the fake is for. That it keeps a device's promises is shown by poseidon/device/device_test.cc.
#include "tests/shared/fake_device.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/shared/device_bench.h"

namespace poseidon::device {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

bool IsPoison(ConstBytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0xdb}; });
}

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
  std::vector<CopyTimes> copies;
  device_.CopyFromHost(content, span, [&](const Result<CopyTimes>& there) {
    copies.push_back(*there);
    EXPECT_TRUE(Same(device_.InKernel(span), content));
    device_.CopyToHost(span, host, nullptr, [&](const Result<CopyTimes>& back) { copies.push_back(*back); });
    EXPECT_TRUE(IsPoison(host));
  });
  EXPECT_TRUE(IsPoison(device_.InKernel(span)));
  executor_.PostAfter(microseconds(10), [&] { EXPECT_TRUE(IsPoison(device_.InKernel(span))); });
  executor_.PostAfter(microseconds(20), [&] { EXPECT_TRUE(IsPoison(host)); });
  executor_.Run();
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].begin, TimePoint{});
  EXPECT_EQ(copies[0].end, TimePoint{microseconds(11)});
  EXPECT_EQ(copies[1].begin, TimePoint{microseconds(11)});
  EXPECT_EQ(copies[1].end, TimePoint{microseconds(22)});
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
  device_.CopyToHost(gradient, first, ready, [&](const Result<CopyTimes>& copied) {
    order += '1';
    EXPECT_EQ(copied->begin, TimePoint{milliseconds(3)});
    EXPECT_EQ(first, ByteBuffer(100, std::byte{7}));
    EXPECT_GT(executor_.now(), TimePoint{milliseconds(3)});
  });
  device_.CopyToHost(other, second, nullptr, [&](const Result<CopyTimes>&) { order += '2'; });
  device_.CopyFromHost(second, other, [&](const Result<CopyTimes>&) { order += 'f'; });  // the other direction
  executor_.Run();
  EXPECT_EQ(order, "fkK12");
  // An event that has happened holds up nobody.
  device_.CopyToHost(gradient, first, earlier, [&](const Result<CopyTimes>&) { order += '3'; });
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
  device_.CopyToHost(gradient, host, ready, [](const Result<CopyTimes>& copied) { EXPECT_TRUE(copied.ok()); });
  executor_.Run();
  EXPECT_EQ(host, ByteBuffer(page, std::byte{7}));
}

TEST_F(FakeDeviceTest, AFailedCopyLeavesPoison) {
  const DeviceSpan span = *device_.Allocate(10);
  ByteBuffer host(10);
  Status status;
  device_.FailNextCopy(Internal("the device fell off the bus"));
  device_.CopyToHost(span, host, nullptr, [&](const Result<CopyTimes>& copied) { status = copied.status(); });
  executor_.Run();
  EXPECT_EQ(status.message(), "the device fell off the bus");
  EXPECT_TRUE(IsPoison(host));
  device_.CopyToHost(span, host, nullptr, [&](const Result<CopyTimes>& copied) { status = copied.status(); });
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
        device_.CopyFromHost(host, span, [](const Result<CopyTimes>&) {});
        host[50] = std::byte{1};
        executor_.Run();
      },
      "memory changed while it was lent");
  EXPECT_DEATH(
      {
        device_.CopyToHost(span, host, nullptr, [](const Result<CopyTimes>&) {});
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
