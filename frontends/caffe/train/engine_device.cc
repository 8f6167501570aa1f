// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/engine_device.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <dlfcn.h>

#include <chrono>
#include <optional>
#include <utility>

#include "frontends/caffe/engine/engine.h"

namespace poseidon::caffe {
namespace {

// Between two looks at a copy. The engine's own wait keeps a core busy, for as long as the device computes what is to be copied.
constexpr std::chrono::microseconds kLook(50);

// The engine has no name for these that is the same on every kind of device. Placement has made the symbols of the engine's library
// known, and with it those of the CUDA runtime that it needs.
template <typename... Arguments>
int CallCuda(const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(RTLD_DEFAULT, name));
  return function == nullptr ? -1 : function(arguments...);
}

// For as long as the thread lives. Where the device is lost by then, what is asked of it next says so.
void Use(const Placement& placement) {
  static_cast<void>(RunOnEngine([&] {
    placement.MakeCurrent();
    return OkStatus();
  }));
}

// CUDA's error; -1 where there is no such function. On the thread's first call for a device CUDA makes a context there, which takes
// memory: only on its own.
template <typename... Arguments>
Result<int> CallCudaOn(const Placement& placement, const char* name, Arguments... arguments) {
  int error = 0;
  POSEIDON_RETURN_IF_ERROR(RunOnEngine([&] {
    const c10::DeviceGuard guard(placement.device());
    error = CallCuda(name, arguments...);
    // Otherwise the engine finds the error behind the next thing that it launches.
    if (error > 0) static_cast<void>(CallCuda("cudaGetLastError"));
    return OkStatus();
  }));
  return error;
}

}  // namespace

EngineDevice::Way::Way(Executor& executor, const Placement& placement)
    : executor_(executor), placement_(placement), stream_(placement.NewStream()), thread_([this] { Wait(); }) {}

EngineDevice::Way::~Way() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

// A copy that cannot be launched fails like one that cannot be made.
void EngineDevice::Way::Copy(Memory from, Memory to, std::size_t bytes, const device::Event& ready, device::Copied done) {
  std::optional<c10::Event> copied;
  const auto numbers = [bytes](const Memory& memory) {
    return at::for_blob(memory.address, {static_cast<std::int64_t>(bytes)})
        .options(at::TensorOptions().dtype(at::kByte).device(memory.device))
        .target_device(memory.device)
        .make_tensor();
  };
  const Status launched = RunOnEngine([&] {
    const c10::StreamGuard on(stream_);
    if (ready != nullptr) static_cast<const EngineEvent&>(*ready).Block(stream_);
    numbers(to).copy_(numbers(from), /*non_blocking=*/true);
    copied.emplace(placement_.Now());
    return OkStatus();
  });
  if (!launched.ok()) {
    executor_.Post([done = std::move(done), launched]() mutable { done(launched); });
    return;
  }
  {
    MutexLock lock(mutex_);
    under_way_.push_back({*std::move(copied), ready, std::move(done)});
  }
  changed_.NotifyAll();
}

void EngineDevice::Way::Wait() {
  Use(placement_);
  for (;;) {
    std::optional<UnderWay> next;
    {
      MutexLock lock(mutex_);
      while (under_way_.empty() && !ended_) changed_.Wait(lock);
      if (under_way_.empty()) return;
      next.emplace(std::move(under_way_.front()));
      under_way_.pop_front();
    }
    device::CopyTimes times;
    const Status status = RunOnEngine([&] {
      // The one before has ended, so this one begins with its event.
      const auto* const ready = static_cast<const EngineEvent*>(next->ready.get());
      while (ready != nullptr && !ready->has_happened()) std::this_thread::sleep_for(kLook);
      times.begin = executor_.now();
      while (!next->copied.query()) std::this_thread::sleep_for(kLook);
      times.end = executor_.now();
      return OkStatus();
    });
    executor_.Post([done = std::move(next->done), copied = status.ok() ? Result<device::CopyTimes>(times) : status]() mutable { done(copied); });
  }
}

EngineDevice::EngineDevice(Executor& executor, const Placement& placement)
    : placement_(placement), name_(placement.name()), out_(executor, placement), back_(executor, placement) {
  Use(placement_);  // on the executor's thread, which launches copies and gives events up
}

EngineDevice::~EngineDevice() = default;

Result<device::HostBuffer> EngineDevice::AllocateHost(std::size_t bytes) {
  at::Tensor memory;
  POSEIDON_RETURN_IF_ERROR(RunOnEngine([&] {
    memory = at::empty({static_cast<std::int64_t>(bytes)}, Pinned(at::kByte));
    return OkStatus();
  }));
  const MutableBytes span(static_cast<std::byte*>(memory.mutable_data_ptr()), bytes);
  return device::HostBuffer(span, [memory](MutableBytes) {});
}

Result<device::HostBuffer> EngineDevice::RegisterHost(MutableBytes memory) {
  constexpr unsigned kForAllDevices = 1;  // cudaHostRegisterPortable
  POSEIDON_ASSIGN_OR_RETURN(const int error, CallCudaOn(placement_, "cudaHostRegister", static_cast<void*>(memory.data()), memory.size(), kForAllDevices));
  if (error < 0) return Device::RegisterHost(memory);
  if (error > 0) {
    return ResourceExhausted(name() + " does not register " + std::to_string(memory.size()) + " bytes of host memory: CUDA error " +
                             std::to_string(error));
  }
  return device::HostBuffer(memory, [placement = placement_](MutableBytes given_up) {
    static_cast<void>(CallCudaOn(placement, "cudaHostUnregister", static_cast<void*>(given_up.data())));
  });
}

void EngineDevice::CopyToHost(device::DeviceSpan from, MutableBytes into, device::Event ready, device::Copied done) {
  out_.Copy({from.address, placement_.device()}, {into.data(), at::kCPU}, into.size(), ready, std::move(done));
}

void EngineDevice::CopyFromHost(ConstBytes from, device::DeviceSpan into, device::Copied done) {
  // Read alone; the engine has no tensors of memory that is not to be written.
  back_.Copy({const_cast<std::byte*>(from.data()), at::kCPU}, {into.address, placement_.device()}, from.size(), nullptr, std::move(done));
}

}  // namespace poseidon::caffe
