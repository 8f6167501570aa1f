// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_GRADIENT_NORM_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_GRADIENT_NORM_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace poseidon::caffe {

// The sum of the squares of all elements of `tensors` (contiguous, float or double), in double and in an order
// fixed by the lengths alone, so that every worker gets the same bits from the same gradients with
// any number of threads. Waits for a device once.
double SumOfSquares(const std::vector<at::Tensor>& tensors);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_GRADIENT_NORM_H_
