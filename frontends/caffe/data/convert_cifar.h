// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_CONVERT_CIFAR_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_CONVERT_CIFAR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "frontends/caffe/data/record_source.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Turns files of CIFAR-10's binary form into a new database of Datums, in the order of the files, with keys "00000", "00001", ... as
// Caffe's converter makes it. Such a file has 3,073 bytes an image: its label and three planes of 32 x 32 pixels, red,
// green, blue. The number of images is the files' own. `database` must not exist; it appears complete or not at
// all. Returns the number of images.
Result<std::uint64_t> ConvertCifar(const std::vector<std::string>& files, const std::string& database, Database backend);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_CONVERT_CIFAR_H_
