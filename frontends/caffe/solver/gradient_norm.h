// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_GRADIENT_NORM_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_GRADIENT_NORM_H_

#include <ATen/core/Tensor.h>

namespace poseidon::caffe {

// The sum of the squares of all elements (contiguous, float or double), in double and in an order
// fixed by the length alone, so that every worker gets the same bits from the same gradient with
// any number of threads.
double SumOfSquares(const at::Tensor& tensor);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_GRADIENT_NORM_H_
