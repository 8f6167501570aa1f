// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_NPY_FILE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_NPY_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "poseidon/base/result.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// An array in NumPy's file format (numpy.lib.format), in C order.
struct NpyArray {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// Takes '<f4', '<f8' and '|u1' in C order. Another type, Fortran's order, a file that ends early or goes on is an error
// that names the file. Memory asked for is bounded by the file's size.
Result<NpyArray> ReadNpy(const std::string& path);

// Writes '<f4'. `values` has as many numbers as `shape` says.
Status WriteNpy(const NpyArray& array, const std::string& path);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_NPY_FILE_H_
