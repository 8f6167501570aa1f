// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_DEVICE_PRODUCTS_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_DEVICE_PRODUCTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "frontends/caffe/net/placement.h"
#include "poseidon/base/result.h"
#include "poseidon/factors/rebuild.h"
#include "poseidon/plan/layer.h"
#include "poseidon/tensor/dtype.h"

// Products of all workers' factors on a device. Replicas stay equal only where every worker's device makes the same bits: each makes a
// test product of fixed numbers, and the core compares their hashes. Where they differ, the layer's gradient goes whole.
namespace poseidon::caffe {

// What the bits of a computation may depend on beside its operands: the engine and the device's kind. "cpu" on the host.
std::string KindOf(const Placement& placement);

// A test product of `rows` rows in all, as factors::TestProduct makes it on the host. The hash is also that of the device's
// kind. Waits for the device; kResourceExhausted where its memory is too small.
Result<factors::ProductTest> TestOnDevice(const plan::FactorShape& shape, DType dtype, std::uint64_t rows, const Placement& placement);

// Of one layer: what was gathered on the host, on its way to the device, and multiplied there. Thread: one.
class GatheredProduct {
 public:
  GatheredProduct(const Placement& placement, const plan::FactorShape& shape) : shape_(shape), u_(placement), v_(placement) {}

  // Leaves the mean of what was gathered in `gradient`, flat, on the device: the weight's [outputs x inputs], and the bias's behind it.
  // Launches copies and product; `gathered` is not read any more.
  void Multiply(const factors::GatheredRows& gathered, const at::Tensor& gradient);

 private:
  plan::FactorShape shape_;
  Upload u_;
  Upload v_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_DEVICE_PRODUCTS_H_
