// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/placement.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <typeinfo>

#include "frontends/caffe/engine/engine.h"

namespace poseidon::caffe {
namespace {

// What the engine has found, once in a process.
struct Found {
  int devices = 0;
  std::string why_none;
};

// The engine's words for a driver that it does not accept, which it would print.
class FirstWarning final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (text.empty()) text = warning.msg();
  }

  std::string text;
};

// Libraries that those of the engine open by name when they first compute. Each package of CUDA has a folder of its own beside the engine's,
// where a name alone does not find them, but one that is loaded is found. Python's torch loads them too (`_preload_cuda_deps` of
// torch/__init__.py). Where one does not load, the engine says what it lacks.
void LoadCudaPackages(const std::filesystem::path& packages) {
  constexpr std::array<std::string_view, 4> kOpenedByName = {"libnvJitLink.so.", "libnvrtc.so.", "libnvrtc-builtins.so.", "libcublasLt.so."};
  std::error_code ignored;
  for (const auto& package : std::filesystem::directory_iterator(packages / "nvidia", ignored)) {
    for (const auto& file : std::filesystem::directory_iterator(package.path() / "lib", ignored)) {
      const std::string name = file.path().filename();
      const auto is_it = [&](std::string_view begin) { return name.starts_with(begin); };
      if (std::ranges::any_of(kOpenedByName, is_it)) static_cast<void>(::dlopen(file.path().c_str(), RTLD_LAZY | RTLD_LOCAL));
    }
  }
}

// The engine registers a device when its library is loaded, which Python does by importing it. Nothing of ours refers to that
// library, so that one program serves engines with and without it.
std::string LoadAccelerators() {
  Dl_info engine{};
  if (::dladdr(reinterpret_cast<const void*>(&at::accelerator::deviceCount), &engine) == 0) return {};
  const std::filesystem::path folder = std::filesystem::path(engine.dli_fname).parent_path();  // torch/lib
  const std::filesystem::path beside = folder / "libtorch_cuda.so";
  std::error_code ignored;
  if (!std::filesystem::exists(beside, ignored)) return {};
  LoadCudaPackages(folder / ".." / "..");
  if (::dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) return ::dlerror();
  // The first who asks the engine for CUDA settles whether it has it.
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  if (typeid(hooks) != typeid(at::CUDAHooksInterface)) return {};
  return "the engine was asked for CUDA before its library was loaded";
}

const Found& Find() {
  static const Found found = [] {
    Found result;
    FirstWarning warning;
    const c10::WarningUtils::WarningHandlerGuard guard(&warning);
    result.why_none = LoadAccelerators();
    result.devices = at::accelerator::getAccelerator() ? at::accelerator::deviceCount() : 0;
    if (result.why_none.empty()) result.why_none = warning.text.substr(0, warning.text.find(". "));
    return result;
  }();
  return found;
}

// The engine's own defaults round the inputs of convolutions, and leave the order of sums to chance.
void ComputeAsOnTheHost() {
  at::Context& engine = at::globalContext();
  engine.setFloat32MatmulPrecision("highest");
  engine.setAllowTF32CuDNN(false);
  // cuBLAS sums in another order from one call to the next, unless it is told before its first use how much memory it has.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  engine.setDeterministicAlgorithms(true, /*warn_only=*/true);
  engine.setDeterministicFillUninitializedMemory(false);  // every number is written before it is read
  engine.setDeterministicCuDNN(true);
  engine.setBenchmarkCuDNN(false);
}

c10::impl::VirtualGuardImpl GuardOf(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()); }

}  // namespace

int Placement::Accelerators() { return Find().devices; }

std::string Placement::WhyNone() {
  const std::string& why = Find().why_none;
  return "the engine finds no GPU here" + (why.empty() ? "" : " (" + why + ")");
}

Result<Placement> Placement::OnAccelerator(int index) {
  const int devices = Accelerators();
  if (devices == 0) return NotFound(WhyNone());
  if (index < 0 || index >= devices) {
    return NotFound("GPU " + std::to_string(index) + " is not here, expected one of the " + std::to_string(devices) +
                    " that the engine finds, which count from 0");
  }
  static const bool set_up = (ComputeAsOnTheHost(), true);
  static_cast<void>(set_up);
  const Placement placement(at::Device(*at::accelerator::getAccelerator(), static_cast<at::DeviceIndex>(index)));
  // Its first use fails where the driver is too old, or where another program holds all of its memory.
  POSEIDON_RETURN_IF_ERROR(RunOnEngine([&] {
    placement.MakeCurrent();
    static_cast<void>(at::empty({1}, at::TensorOptions().device(placement.device())));
    return OkStatus();
  }).WithPrefix(placement.name()));
  return placement;
}

void AllowTf32() {
  at::globalContext().setFloat32MatmulPrecision("high");
  at::globalContext().setAllowTF32CuDNN(true);
}

void Placement::MakeCurrent() const { GuardOf(device_).setDevice(device_); }

at::Stream Placement::stream() const { return GuardOf(device_).getStream(device_); }

at::Stream Placement::NewStream() const { return GuardOf(device_).getNewStream(device_); }

c10::Event Placement::Now(bool timed) const {
  c10::Event event(device_.type(), timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT);
  event.record(stream());
  return event;
}

void Placement::Synchronize() const { at::accelerator::synchronizeDevice(device_.index()); }

at::Tensor OnHost(const at::Tensor& tensor) { return (tensor.is_cpu() ? tensor : tensor.cpu()).contiguous(); }

at::TensorOptions Pinned(at::ScalarType dtype) {
  return at::TensorOptions().dtype(dtype).pinned_memory(at::accelerator::getAccelerator().has_value());
}

at::Tensor Upload::Memory(const at::Tensor& to) {
  turn_ = (turn_ + 1) % pieces_.size();
  Piece& piece = pieces_[turn_];
  if (piece.copied && !piece.copied->query()) piece.copied->synchronize();
  piece.copied.reset();
  if (!piece.memory.defined() || piece.memory.sizes() != to.sizes()) piece.memory = at::empty(to.sizes(), Pinned(to.scalar_type()));
  return piece.memory;
}

void Upload::Copy(const at::Tensor& to) {
  Piece& piece = pieces_[turn_];
  to.copy_(piece.memory, /*non_blocking=*/true);
  piece.copied.emplace(placement_.Now());
}

}  // namespace poseidon::caffe
