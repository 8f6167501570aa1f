// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_COLLECTIVES_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_COLLECTIVES_H_

#include <span>

#include "poseidon/base/status.h"

namespace poseidon::caffe {

// The solver's communication with other workers besides gradients. One worker alone has none (a
// null pointer); the distributed trainer implements it over the core's small collectives. Thread:
// called on the solver's thread, by every worker at the same iterations in the same order.
class Collectives {
 public:
  virtual ~Collectives() = default;
  // Replaces `values`, of one length on all workers, by their sums over the workers, bit for bit
  // the same everywhere. A number that only one worker set (the others have 0) arrives as it is.
  virtual Status SumDoubles(std::span<double> values) = 0;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_COLLECTIVES_H_
