// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_WEIGHTS_HASH_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_WEIGHTS_HASH_H_

#include <string>

#include "frontends/caffe/net/net.h"

namespace poseidon::caffe {

// SHA-256 in hexadecimal over the learned blobs of `net` in Caffe's order, each number as a
// little-endian 32-bit float. Running statistics (BatchNorm) are left out: they differ by worker.
std::string WeightsHash(const Net& net);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_WEIGHTS_HASH_H_
