// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_DEVICE_HOST_DEVICE_H_
#define POSEIDON_DEVICE_HOST_DEVICE_H_

#include <string>

#include "poseidon/device/device.h"

namespace poseidon::device {

// The host's own memory. Nothing needs staging; who stages all the same gets plain copies, done when
// the completion fires.
class HostDevice final : public Device {
 public:
  explicit HostDevice(Executor& executor) : executor_(executor) {}

  const std::string& name() const override { return name_; }
  bool host_accessible() const override { return true; }
  Result<HostBuffer> AllocateHost(std::size_t bytes) override;
  // `ready` must be null: the host has no engine that works ahead of its program.
  void CopyToHost(DeviceSpan from, MutableBytes into, Event ready, Copied done) override;
  void CopyFromHost(ConstBytes from, DeviceSpan into, Copied done) override;

 private:
  void Copy(const std::byte* from, std::byte* into, std::size_t bytes, Copied done);

  Executor& executor_;
  const std::string name_ = "host";
};

}  // namespace poseidon::device

#endif  // POSEIDON_DEVICE_HOST_DEVICE_H_
