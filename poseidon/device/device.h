// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_DEVICE_DEVICE_H_
#define POSEIDON_DEVICE_DEVICE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "poseidon/base/bytes.h"
#include "poseidon/base/executor.h"
#include "poseidon/base/result.h"
#include "poseidon/base/unique_function.h"
#include "poseidon/tensor/view.h"

// Where gradients live. The core computes on host memory; memory of a device is staged through
// copies that complete later. A gradient on a device is pushed in four moves: wait until the engine
// has produced it (its ready event) and copy it to a staging buffer, send, receive the result into
// the staging buffer, copy it back; then the layer's completion fires.
namespace poseidon::device {

// Memory of a device. The address means nothing to the host unless the device says so; parts of a
// span are spans.
struct DeviceSpan {
  std::byte* address = nullptr;
  std::size_t size = 0;
};
inline DeviceSpan SpanOf(const TensorView& view) { return {view.memory, view.bytes()}; }

// A moment in the work of a device's engine: when all that was launched before it is done. Made by the
// device's own kind (a CUDA event, a fake kernel) and only copied around here; null has always
// happened.
class EventState {
 public:
  virtual ~EventState() = default;
};
using Event = std::shared_ptr<EventState>;

// Host memory that a device's copies reach at full speed (pinned for CUDA), 64-byte aligned. Freed
// when destroyed, or only given up by the device where somebody else owns it; outlives the copies it takes part in.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(MutableBytes memory, UniqueFunction<void(MutableBytes)> release)
      : memory_(memory), release_(std::move(release)) {}
  HostBuffer(HostBuffer&& other) noexcept
      : memory_(std::exchange(other.memory_, {})), release_(std::move(other.release_)) {}
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~HostBuffer() {
    if (release_) release_(memory_);
  }
  MutableBytes bytes() const { return memory_; }

 private:
  MutableBytes memory_;
  UniqueFunction<void(MutableBytes)> release_;
};

// From when to when a copy ran, as far as its device knows: one that cannot tell when it began says when it was asked for, or when
// the one before in its direction ended.
struct CopyTimes {
  TimePoint begin;
  TimePoint end;
};
using Copied = UniqueFunction<void(const Result<CopyTimes>&)>;

// Copies of one direction run one after the other in the order they were asked for (one stream per
// direction), and a copy that waits for its event holds up those behind it, as on a real stream.
// Each completion fires exactly once, on the executor the device was made with, never inside the call;
// with kUnavailable when the device is destroyed first.
//
// Thread: any, except that destruction is on the device's executor. Lifetime: the executor outlives it.
class Device {
 public:
  virtual ~Device() = default;

  // For log lines and plans: "host", "cuda:0".
  virtual const std::string& name() const = 0;
  // True when device memory is host memory: nothing needs to be staged.
  virtual bool host_accessible() const = 0;

  // kResourceExhausted with the size in the message when there is not so much.
  virtual Result<HostBuffer> AllocateHost(std::size_t bytes) = 0;
  // Registers host memory that somebody else owns, so that copies reach it at full speed until what is returned is destroyed, which is
  // before the owner unmaps it. Whole pages, of which none is registered already.
  // kUnimplemented where the device takes no memory of others, kResourceExhausted where it does not get as much.
  virtual Result<HostBuffer> RegisterHost(MutableBytes memory) {
    return Unimplemented(name() + " takes no " + std::to_string(memory.size()) + " bytes of host memory that others own");
  }

  // Copies `from`, once `ready` has happened, to `into` of the same size. Until the completion both
  // are lent: `from` unchanged, `into` undefined.
  virtual void CopyToHost(DeviceSpan from, MutableBytes into, Event ready, Copied done) = 0;
  // Copies `from` to `into` of the same size; lent likewise. What the engine launches after the
  // completion sees the bytes.
  virtual void CopyFromHost(ConstBytes from, DeviceSpan into, Copied done) = 0;
};

}  // namespace poseidon::device

#endif  // POSEIDON_DEVICE_DEVICE_H_
