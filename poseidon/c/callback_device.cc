// SPDX-License-Identifier: Apache-2.0
#include "poseidon/c/callback_device.h"

#include <algorithm>
#include <utility>

#include "poseidon/device/host_device.h"

namespace poseidon::c {

struct CallbackDevice::Copy {
  CallbackDevice* device = nullptr;
  Way* way = nullptr;
  std::size_t bytes = 0;
  TimePoint asked;
  device::Copied done;
};

CallbackDevice::CallbackDevice(Executor& executor, const poseidon_device& device)
    : executor_(executor),
      device_(device),
      name_(device.name != nullptr ? device.name : "device " + std::to_string(device.device_id)) {}

CallbackDevice::~CallbackDevice() {
  MutexLock lock(mutex_);
  while (under_way_ > 0) idle_.Wait(lock);
}

Result<device::HostBuffer> CallbackDevice::AllocateHost(std::size_t bytes) {
  if (device_.allocate_host == nullptr) return device::HostDevice(executor_).AllocateHost(bytes);
  void* const memory = device_.allocate_host(device_.user, bytes);
  if (memory == nullptr) {
    return ResourceExhausted(name_ + " has no " + std::to_string(bytes) + " bytes of host memory for staging");
  }
  return device::HostBuffer({static_cast<std::byte*>(memory), bytes},
                            [free = device_.free_host, user = device_.user](MutableBytes freed) {
                              if (free != nullptr) free(user, freed.data(), freed.size());
                            });
}

Result<device::HostBuffer> CallbackDevice::RegisterHost(MutableBytes memory) {
  if (device_.register_host == nullptr) return Device::RegisterHost(memory);
  if (device_.register_host(device_.user, memory.data(), memory.size()) == 0) {
    return ResourceExhausted(name_ + " does not register " + std::to_string(memory.size()) + " bytes of host memory");
  }
  return device::HostBuffer(memory, [unregister = device_.unregister_host, user = device_.user](MutableBytes given_up) {
    if (unregister != nullptr) unregister(user, given_up.data(), given_up.size());
  });
}

CallbackDevice::Copy* CallbackDevice::Begin(Way CallbackDevice::*way, std::size_t bytes, device::Copied done) {
  // Counted before the caller's function begins the copy, because OnDone may run before that function returns.
  MutexLock lock(mutex_);
  ++under_way_;
  return new Copy{this, &(this->*way), bytes, executor_.now(), std::move(done)};
}

device::CopyTimes CallbackDevice::TimesOf(const Copy& copy) {
  MutexLock lock(mutex_);
  TimePoint& last_end = copy.way->last_end;
  const TimePoint begin = std::max(copy.asked, last_end);
  const TimePoint end = std::max(begin, executor_.now());
  last_end = end;
  return {begin, end};
}

// On any thread of the caller's. The device may be gone once the count is down, so that comes last.
void CallbackDevice::OnDone(void* token, poseidon_code code) {
  const std::unique_ptr<Copy> copy(static_cast<Copy*>(token));
  CallbackDevice& self = *copy->device;
  Result<device::CopyTimes> copied = self.TimesOf(*copy);
  if (code != POSEIDON_OK) {
    // The caller may answer with a number that is no StatusCode.
    const bool known = code > POSEIDON_OK && code <= POSEIDON_INTERNAL;
    copied = Status(known ? static_cast<StatusCode>(code) : StatusCode::kInternal,
                    "a copy of " + std::to_string(copy->bytes) + " bytes " + copy->way->words + " " + self.name_ +
                        " failed with code " + std::to_string(code));
  }
  self.executor_.Post([done = std::move(copy->done), copied] { done(copied); });
  MutexLock lock(self.mutex_);
  if (--self.under_way_ == 0) self.idle_.NotifyAll();
}

void CallbackDevice::CopyToHost(device::DeviceSpan from, MutableBytes into, device::Event ready, device::Copied done) {
  const auto* const event = static_cast<const CallbackEvent*>(ready.get());
  device_.copy_to_host(device_.user, from.address, into.data(), from.size,
                       event != nullptr ? event->handle() : nullptr, &CallbackDevice::OnDone,
                       Begin(&CallbackDevice::to_host_, from.size, std::move(done)));
}

void CallbackDevice::CopyFromHost(ConstBytes from, device::DeviceSpan into, device::Copied done) {
  device_.copy_from_host(device_.user, from.data(), into.address, from.size(), &CallbackDevice::OnDone,
                         Begin(&CallbackDevice::from_host_, from.size(), std::move(done)));
}

}  // namespace poseidon::c
