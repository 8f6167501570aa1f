// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_PASS_CONTEXT_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_PASS_CONTEXT_H_

#include <cstdint>

namespace poseidon::caffe {

// Which pass over the net this is; the solver sets it before every Forward. Random draws and the
// choice of records depend on it alone, so P workers with batch b see together what one worker with
// batch P * b sees: row i of a worker is row rank * rows + i of the global batch.
struct PassContext {
  std::uint64_t step = 0;   // iteration of the solver
  std::uint32_t pass = 0;   // 0 .. iter_size - 1 within the iteration
  std::uint64_t batch = 0;  // number of the global batch: step * iter_size + pass; in a test, the
                            // number of the test batch
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_PASS_CONTEXT_H_
