// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_CONVERT_MNIST_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_CONVERT_MNIST_H_

#include <cstdint>
#include <string>

#include "frontends/caffe/data/record_source.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Turns a pair of IDX files (MNIST's format, plain or gzipped) into a new database of Datums with keys
// "00000000", "00000001", ... as Caffe's converter makes it. `database` must not exist; it appears
// complete or not at all. Returns the number of images.
Result<std::uint64_t> ConvertMnist(const std::string& images, const std::string& labels,
                                   const std::string& database, Database backend = Database::kLmdb);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_CONVERT_MNIST_H_
