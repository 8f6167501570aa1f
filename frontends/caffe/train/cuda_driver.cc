// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/cuda_driver.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <utility>

namespace poseidon::caffe {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";  // which comes with the driver

// CUdevice_attribute.
enum Attribute {
  kThreadsPerBlock = 1,
  kBlockX = 2,
  kBlockY = 3,
  kBlockZ = 4,
  kGridX = 5,
  kGridY = 6,
  kGridZ = 7,
  kSharedMemory = 8,
  kConstantMemory = 9,
  kWarpSize = 10,
  kPitch = 11,
  kRegisters = 12,
  kClockRate = 13,
  kTextureAlignment = 14,
  kOverlap = 15,
  kMultiprocessors = 16,
  kTimeout = 17,
  kMajor = 75,
  kMinor = 76,
};

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

std::string Line(const std::string& what, const std::string& value) {
  constexpr std::size_t kColumn = 31;
  return what + ":" + std::string(kColumn - what.size() - 1, ' ') + value + "\n";
}

}  // namespace

Status CudaDriver::Check(const char* doing, Code code) const {
  if (code == 0) return OkStatus();
  const char* words = nullptr;
  if (call_.words(code, &words) != 0 || words == nullptr) words = "an unknown error";
  return Unavailable(std::string("the CUDA driver fails to ") + doing + ": " + words + " (" + std::to_string(code) + ")");
}

Result<CudaDriver> CudaDriver::Load() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // for as long as the process lives
  if (library == nullptr) return NotFound(std::string("no CUDA driver is installed here (") + kLibrary + ")");
  CudaDriver driver;
  Functions& call = driver.call_;
  const bool complete = Find(library, "cuInit", &call.init) && Find(library, "cuDeviceGetCount", &call.count) &&
                        Find(library, "cuDeviceGet", &call.get) && Find(library, "cuDeviceGetName", &call.name) &&
                        Find(library, "cuDeviceTotalMem_v2", &call.memory) && Find(library, "cuDeviceGetAttribute", &call.attribute) &&
                        Find(library, "cuGetErrorString", &call.words);
  if (!complete) return Unavailable(std::string(kLibrary) + " is older than CUDA 6, expected a newer driver");
  constexpr Code kNoDevice = 100;
  const Code begun = call.init(0);
  if (begun == kNoDevice) return NotFound("the CUDA driver finds no GPU");
  POSEIDON_RETURN_IF_ERROR(driver.Check("begin", begun));
  POSEIDON_RETURN_IF_ERROR(driver.Check("count its GPUs", call.count(&driver.devices_)));
  if (driver.devices_ == 0) return NotFound("the CUDA driver finds no GPU");
  return driver;
}

Result<int> CudaDriver::Handle(int device) const {
  if (device < 0 || device >= devices_) {
    return InvalidArgument("GPU " + std::to_string(device) + " is not here, expected one of the " + std::to_string(devices_) +
                           " that the CUDA driver finds, which count from 0");
  }
  int handle = 0;
  POSEIDON_RETURN_IF_ERROR(Check("show a GPU", call_.get(&handle, device)));
  return handle;
}

Result<std::string> CudaDriver::NameOf(int device) const {
  POSEIDON_ASSIGN_OR_RETURN(const int handle, Handle(device));
  std::array<char, 256> name{};
  POSEIDON_RETURN_IF_ERROR(Check("name a GPU", call_.name(name.data(), static_cast<int>(name.size()) - 1, handle)));
  return std::string(name.data());
}

Result<std::string> CudaDriver::Describe(int device) const {
  POSEIDON_ASSIGN_OR_RETURN(const int handle, Handle(device));
  POSEIDON_ASSIGN_OR_RETURN(const std::string name, NameOf(device));
  std::size_t memory = 0;
  POSEIDON_RETURN_IF_ERROR(Check("measure a GPU's memory", call_.memory(&memory, handle)));
  Status failure;
  const auto value = [&](Attribute attribute) {
    int found = 0;
    const Status asked = Check("describe a GPU", call_.attribute(&found, attribute, handle));
    if (failure.ok()) failure = asked;
    return found;
  };
  const auto number = [&](Attribute attribute) { return std::to_string(value(attribute)); };
  const auto three = [&](Attribute x, Attribute y, Attribute z) { return number(x) + ", " + number(y) + ", " + number(z); };
  const auto yes = [&](Attribute attribute) { return std::string(value(attribute) != 0 ? "Yes" : "No"); };
  std::string text = Line("Device id", std::to_string(device));
  text += Line("Major revision number", number(kMajor));
  text += Line("Minor revision number", number(kMinor));
  text += Line("Name", name);
  text += Line("Total global memory", std::to_string(memory));
  text += Line("Total shared memory per block", number(kSharedMemory));
  text += Line("Total registers per block", number(kRegisters));
  text += Line("Warp size", number(kWarpSize));
  text += Line("Maximum memory pitch", number(kPitch));
  text += Line("Maximum threads per block", number(kThreadsPerBlock));
  text += Line("Maximum dimension of block", three(kBlockX, kBlockY, kBlockZ));
  text += Line("Maximum dimension of grid", three(kGridX, kGridY, kGridZ));
  text += Line("Clock rate", number(kClockRate));
  text += Line("Total constant memory", number(kConstantMemory));
  text += Line("Texture alignment", number(kTextureAlignment));
  text += Line("Concurrent copy and execution", yes(kOverlap));
  text += Line("Number of multiprocessors", number(kMultiprocessors));
  text += Line("Kernel execution timeout", yes(kTimeout));
  POSEIDON_RETURN_IF_ERROR(failure);
  return text;
}

}  // namespace poseidon::caffe
