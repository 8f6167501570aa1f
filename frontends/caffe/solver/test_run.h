// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_TEST_RUN_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_TEST_RUN_H_

#include <cstdint>

#include "frontends/caffe/data/share.h"
#include "frontends/caffe/net/net.h"
#include "frontends/caffe/solver/collectives.h"
#include "frontends/caffe/solver/observer.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Means of a net's outputs over test batches.
struct TestMeans {
  std::vector<OutputValue> outputs;
  double loss = 0;
};

// Runs `batches` batches, numbers [first_batch, first_batch + batches), forward through `net`:
// batch i of them on worker i mod world. The values of each batch are brought together and added in
// batch order, so that the means are the same for any number of workers. `collectives` may be null
// when `share.world` is 1.
Result<TestMeans> RunTest(Net* net, std::uint64_t first_batch, int batches, DataShare share,
                          Collectives* collectives);

// The outputs of `net` as they are now, element by element.
std::vector<OutputValue> OutputsOf(const Net& net);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_TEST_RUN_H_
