// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_PLACEMENT_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_PLACEMENT_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Where the blobs of a net are: on the host, or on a device of the one kind of accelerator that the engine has (CUDA, or any other
// that it knows streams and events of). Work on a device is launched and done later, in the order of the current stream of the
// thread that launches it.
//
// A value. Thread: any; the current stream is that of the calling thread.
class Placement {
 public:
  Placement() = default;  // the host
  // Device `index` of the accelerator. Loads the engine's library for it where one is beside the engine. Makes the device the
  // calling thread's current one. kNotFound says what is missing: no accelerator, or how many devices there are. From here on the
  // engine takes those of its operators that give the same bits every time, where it has them, and rounds no input (AllowTf32).
  static Result<Placement> OnAccelerator(int index);
  // How many devices the accelerator has; 0 where there is no accelerator.
  static int Accelerators();
  // "the engine finds no GPU here", with what its library says where that cannot be loaded or does not accept the driver. Asked for
  // once Accelerators is 0.
  static std::string WhyNone();

  bool on_host() const { return device_.is_cpu(); }
  at::Device device() const { return device_; }
  std::string name() const { return device_.str(); }  // "cpu", "cuda:0"

  // The rest is of a device: not on_host().

  // Makes it the calling thread's current one. A thread that uses a device for long does so first. An event makes the device that was
  // current before it current again, and CUDA takes memory of a device when it becomes current.
  void MakeCurrent() const;
  at::Stream stream() const;  // the current one
  at::Stream NewStream() const;
  // A moment in the work of the current stream: when all that was launched before is done. `timed`: its time is asked for.
  c10::Event Now(bool timed = false) const;
  // Waits until everything that was launched is done.
  void Synchronize() const;

 private:
  explicit Placement(at::Device device) : device_(device) {}

  at::Device device_ = at::kCPU;
};

// Products and convolutions of devices may round their inputs to TF32, whose fraction has 10 bits in place of 23, from here on.
void AllowTf32();

// The way of numbers that the host makes to a device, which does not make the host wait: two pieces of pinned memory by turns.
// Thread: one.
class Upload {
 public:
  explicit Upload(const Placement& placement) : placement_(placement) {}
  // Memory of the host like `to`, a tensor on the device, to write into. It is not read any more.
  at::Tensor Memory(const at::Tensor& to);
  // Copies what Memory returned last to `to`, in the order of the current stream.
  void Copy(const at::Tensor& to);

 private:
  struct Piece {
    at::Tensor memory;
    std::optional<c10::Event> copied;
  };
  Placement placement_;
  std::array<Piece, 2> pieces_;
  std::size_t turn_ = 0;
};

// The same numbers in memory of the host, contiguous; the tensor itself where it is there. Waits for a device.
at::Tensor OnHost(const at::Tensor& tensor);

// Options of memory of the host that copies of the accelerator reach at full speed, and make nobody wait; of ordinary memory
// where there is no accelerator.
at::TensorOptions Pinned(at::ScalarType dtype);

// Calls write(host) with contiguous memory of the host of the tensor's shape and dtype, whose numbers then are the tensor's. On the
// host that memory is its own.
template <typename Write>
void WriteOnHost(const at::Tensor& tensor, const Write& write) {
  if (tensor.is_cpu()) return write(tensor);
  const at::Tensor host = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  write(host);
  tensor.copy_(host);
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_PLACEMENT_H_
