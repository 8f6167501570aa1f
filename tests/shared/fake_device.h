// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_SHARED_FAKE_DEVICE_H_
#define POSEIDON_TESTS_SHARED_FAKE_DEVICE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "poseidon/device/device.h"

namespace poseidon::device {

struct FakeDeviceOptions {
  std::string name = "fake:0";
  std::size_t memory_bytes = std::size_t{64} << 20;
  // A copy takes latency + bytes / rate on its direction's stream; 0: no time for the bytes.
  Duration copy_latency = std::chrono::microseconds(10);
  double copy_bytes_per_second = 0;
  bool registers = true;  // host memory of others
};

// An accelerator without the accelerator: its own memory, an engine that runs kernels one after the
// other, and copies that take time on the executor's timers (on a virtual executor: in virtual time).
// It is strict where real ones are merely wrong at times:
//
// - device addresses are not mapped for the host, so that touching device memory without a copy stops
//   the program at once;
// - the destination of a copy holds poison from the call until the completion;
// - memory that changes while it is lent to a copy aborts the program.
//
// Thread: any, except that destruction is on the executor.
class FakeDevice final : public Device {
 public:
  explicit FakeDevice(Executor& executor, FakeDeviceOptions options = {});
  ~FakeDevice() override;
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  const std::string& name() const override;
  bool host_accessible() const override { return false; }
  Result<HostBuffer> AllocateHost(std::size_t bytes) override;
  Result<HostBuffer> RegisterHost(MutableBytes memory) override;
  void CopyToHost(DeviceSpan from, MutableBytes into, Event ready, Copied done) override;
  void CopyFromHost(ConstBytes from, DeviceSpan into, Copied done) override;

  // --- what the engine of a front end does with its device ---

  // 256-byte aligned, poisoned. kResourceExhausted when no free part is so large.
  Result<DeviceSpan> Allocate(std::size_t bytes);
  // A span that Allocate gave.
  void Free(DeviceSpan span);

  // Runs `kernel` on the executor once all kernels launched before have ended and `duration` has
  // passed. The event has happened when it has run.
  Event Launch(Duration duration, Task kernel);
  // Returns the bytes of a span within one allocation, as a kernel sees them. For kernels, and for tests that
  // look at what a kernel would see; the code under test goes through copies.
  MutableBytes InKernel(DeviceSpan span);

  // The next copy that ends fails with `status` and leaves poison.
  void FailNextCopy(Status status);

 private:
  class Memory;
  struct Stream;
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace poseidon::device

#endif  // POSEIDON_TESTS_SHARED_FAKE_DEVICE_H_
