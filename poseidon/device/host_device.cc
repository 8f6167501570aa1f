// SPDX-License-Identifier: Apache-2.0
#include "poseidon/device/host_device.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::device {

Result<HostBuffer> HostDevice::AllocateHost(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  constexpr std::size_t kMost = PTRDIFF_MAX / kAlignment * kAlignment;  // of any object
  // C11 wants a size that is a multiple of the alignment.
  const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* const memory = bytes > kMost ? nullptr : std::aligned_alloc(kAlignment, whole);
  if (memory == nullptr && bytes > 0) {
    return ResourceExhausted("cannot allocate " + std::to_string(bytes) + " bytes of host memory");
  }
  return HostBuffer(MutableBytes(static_cast<std::byte*>(memory), bytes),
                    [memory](MutableBytes) { std::free(memory); });
}

void HostDevice::CopyToHost(DeviceSpan from, MutableBytes into, Event ready, Copied done) {
  POSEIDON_CHECK(ready == nullptr, "the host has no events");
  POSEIDON_CHECK(from.size == into.size(), "a copy keeps its size");
  Copy(from.address, into.data(), from.size, std::move(done));
}

void HostDevice::CopyFromHost(ConstBytes from, DeviceSpan into, Copied done) {
  POSEIDON_CHECK(from.size() == into.size, "a copy keeps its size");
  Copy(from.data(), into.address, into.size, std::move(done));
}

void HostDevice::Copy(const std::byte* from, std::byte* into, std::size_t bytes, Copied done) {
  const TimePoint begin = executor_.now();
  if (bytes > 0) std::memmove(into, from, bytes);
  executor_.Post([done = std::move(done), times = CopyTimes{begin, executor_.now()}] { done(times); });
}

}  // namespace poseidon::device
