// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_ENGINE_DEVICE_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_ENGINE_DEVICE_H_

#include <ATen/core/Tensor.h>

#include <deque>
#include <string>
#include <thread>

#include "frontends/caffe/net/placement.h"
#include "poseidon/base/mutex.h"
#include "poseidon/device/device.h"

namespace poseidon::caffe {

// A moment in the work of a device of the engine, as the core passes it on.
class EngineEvent final : public device::EventState {
 public:
  // What the calling thread has launched so far.
  explicit EngineEvent(const Placement& placement) : event_(placement.Now()) {}
  // The stream does what it is given from now on behind this moment.
  void Block(const at::Stream& stream) const { event_.block(stream); }
  bool has_happened() const { return event_.query(); }

 private:
  const c10::Event event_;
};

// A device of the engine for the core's copies: a stream for each direction, and a thread for each that waits for what was launched
// there. Everything goes through the engine's streams and events, whatever kind of device it is. Memory of the host has to be of
// AllocateHost or RegisterHost: a copy of other memory makes the caller wait for it.
class EngineDevice final : public device::Device {
 public:
  // Completions are posted to `executor`.
  EngineDevice(Executor& executor, const Placement& placement);
  // Waits for copies under way, whose memory is lent.
  ~EngineDevice() override;

  const std::string& name() const override { return name_; }
  bool host_accessible() const override { return false; }
  Result<device::HostBuffer> AllocateHost(std::size_t bytes) override;
  // By the CUDA library that the engine brought. kUnimplemented where it brought none.
  Result<device::HostBuffer> RegisterHost(MutableBytes memory) override;
  void CopyToHost(device::DeviceSpan from, MutableBytes into, device::Event ready, device::Copied done) override;
  void CopyFromHost(ConstBytes from, device::DeviceSpan into, device::Copied done) override;

 private:
  // Copies of one direction, in order.
  class Way {
   public:
    Way(Executor& executor, const Placement& placement);
    ~Way();
    struct Memory {
      std::byte* address = nullptr;
      at::Device device = at::kCPU;
    };
    // Launches a copy behind `ready`, of memory that is lent.
    void Copy(Memory from, Memory to, std::size_t bytes, const device::Event& ready, device::Copied done);

   private:
    struct UnderWay {
      c10::Event copied;
      device::Event ready;  // lives until it has happened
      device::Copied done;
    };
    void Wait();

    Executor& executor_;
    const Placement placement_;
    const at::Stream stream_;
    Mutex mutex_;
    ConditionVariable changed_;
    std::deque<UnderWay> under_way_ POSEIDON_GUARDED_BY(mutex_);
    bool ended_ POSEIDON_GUARDED_BY(mutex_) = false;
    std::thread thread_;
  };

  const Placement placement_;
  const std::string name_;
  Way out_;
  Way back_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_ENGINE_DEVICE_H_
