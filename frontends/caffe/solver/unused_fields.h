// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_UNUSED_FIELDS_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_UNUSED_FIELDS_H_

#include <string>
#include <vector>

#include "frontends/caffe/proto/caffe.pb.h"
#include "frontends/caffe/solver/nets.h"

namespace poseidon::caffe {

// A sentence for each field that the solver or its nets set and that changes nothing here, with the layers that set it: for
// the user, once. `engine` has none: it chooses among implementations of the same result.
std::vector<std::string> UnusedFields(const SolverParameter& solver, const SolverNets& nets);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_UNUSED_FIELDS_H_
