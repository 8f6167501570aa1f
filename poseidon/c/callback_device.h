// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_C_CALLBACK_DEVICE_H_
#define POSEIDON_C_CALLBACK_DEVICE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "poseidon/base/mutex.h"
#include "poseidon/c/poseidon.h"
#include "poseidon/device/device.h"

namespace poseidon::c {

// An event of the caller's device, only carried around.
class CallbackEvent final : public device::EventState {
 public:
  explicit CallbackEvent(void* handle) : handle_(handle) {}
  void* handle() const { return handle_; }

 private:
  void* const handle_;
};

// The device that the caller describes: every touch of its memory is one of the caller's copies.
// The destructor blocks until the caller has ended every copy, because a copy reads or writes memory of ours.
class CallbackDevice final : public device::Device {
 public:
  CallbackDevice(Executor& executor, const poseidon_device& device);
  ~CallbackDevice() override;

  const std::string& name() const override { return name_; }
  bool host_accessible() const override { return false; }
  Result<device::HostBuffer> AllocateHost(std::size_t bytes) override;
  Result<device::HostBuffer> RegisterHost(MutableBytes memory) override;
  void CopyToHost(device::DeviceSpan from, MutableBytes into, device::Event ready, device::Copied done) override;
  void CopyFromHost(ConstBytes from, device::DeviceSpan into, device::Copied done) override;

 private:
  struct Copy;
  // Copies of one direction, which run one after the other.
  struct Way {
    const char* words = "";
    TimePoint last_end;
  };
  device::CopyTimes TimesOf(const Copy& ended);
  static void OnDone(void* token, poseidon_code code);
  Copy* Begin(Way CallbackDevice::*way, std::size_t bytes, device::Copied done);

  Executor& executor_;
  const poseidon_device device_;
  const std::string name_;
  Mutex mutex_;
  ConditionVariable idle_;
  std::size_t under_way_ POSEIDON_GUARDED_BY(mutex_) = 0;
  Way to_host_ POSEIDON_GUARDED_BY(mutex_){"from", {}};
  Way from_host_ POSEIDON_GUARDED_BY(mutex_){"to", {}};
};

}  // namespace poseidon::c

#endif  // POSEIDON_C_CALLBACK_DEVICE_H_
