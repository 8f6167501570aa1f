// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_CUDA_DRIVER_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_CUDA_DRIVER_H_

#include <cstdint>
#include <string>

#include "poseidon/base/result.h"

namespace poseidon::caffe {

// The CUDA driver of this machine, found when it is asked for: no header of CUDA and no toolkit is needed. It never changes what a
// GPU does. Thread: any.
class CudaDriver {
 public:
  // kNotFound where libcuda.so.1 is not installed, or finds no device; kUnavailable with the driver's own words where it does not work.
  static Result<CudaDriver> Load();

  int devices() const { return devices_; }
  Result<std::string> NameOf(int device) const;
  // What Caffe's device_query says of a device, a property a line. kInvalidArgument for a number that no device has.
  Result<std::string> Describe(int device) const;

 private:
  // As in CUDA's driver interface, whose names and numbers never change their meaning.
  using Code = int;
  struct Functions {
    Code (*init)(unsigned) = nullptr;
    Code (*count)(int*) = nullptr;
    Code (*get)(int*, int) = nullptr;
    Code (*name)(char*, int, int) = nullptr;
    Code (*memory)(std::size_t*, int) = nullptr;
    Code (*attribute)(int*, int, int) = nullptr;
    Code (*words)(Code, const char**) = nullptr;
  };

  Status Check(const char* doing, Code code) const;
  Result<int> Handle(int device) const;

  Functions call_;
  int devices_ = 0;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_CUDA_DRIVER_H_
