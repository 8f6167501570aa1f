// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_PROTO_HDF5_ROWS_H_
#define POSEIDON_FRONTENDS_CAFFE_PROTO_HDF5_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "poseidon/base/result.h"

// Datasets of HDF5 files whose first axis counts rows, read and written a few rows at a time.
namespace poseidon::caffe {

// In which order rows will be asked for.
enum class Hdf5Access { kInOrder, kAtRandom };

// Some datasets of one file, open as long as the reader lives. They have equally many rows.
// Thread: one at a time; readers in several threads wait for each other.
class Hdf5RowReader {
 public:
  // Opens the datasets `names` of the file and checks them: at least one axis, floats or integers, no more numbers
  // than the file can hold, all of them in this file. Nothing is read yet. Errors name the file and the dataset.
  // Chunks of a packed dataset (gzip, shuffle) are unpacked once as long as what is needed again fits in memory: those
  // that hold one row, in order, at most 64 MiB; at random all of them, at most 256 MiB.
  static Result<std::unique_ptr<Hdf5RowReader>> Open(const std::string& path, const std::vector<std::string>& names,
                                                     Hdf5Access access);
  virtual ~Hdf5RowReader() = default;

  virtual std::uint64_t rows() const = 0;
  // The axes behind the first one.
  virtual const std::vector<std::int64_t>& row_shape(std::size_t dataset) const = 0;
  // Writes rows [first, first + count), which are in the file, to `out`, row after row.
  virtual Status Read(std::size_t dataset, std::uint64_t first, std::uint64_t count, float* out) = 0;
  virtual Status Read(std::size_t dataset, std::uint64_t first, std::uint64_t count, double* out) = 0;
};

// A file of datasets that grow by rows. What was appended is in the file when Append returns, and the file can be
// read as a whole after each Flush.
// Thread: one at a time; writers in several threads wait for each other.
class Hdf5RowWriter {
 public:
  // Makes the file anew. Fails where it cannot be made, or another writer of this process has it open.
  static Result<std::unique_ptr<Hdf5RowWriter>> Create(const std::string& path);
  virtual ~Hdf5RowWriter() = default;

  // Appends shape[0] rows to dataset `name`, which the first call makes: later ones have the same axes behind the
  // first. An error names the file and the dataset.
  virtual Status Append(const std::string& name, const std::vector<std::int64_t>& shape, const float* numbers) = 0;
  virtual Status Append(const std::string& name, const std::vector<std::int64_t>& shape, const double* numbers) = 0;
  virtual Status Flush() = 0;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_PROTO_HDF5_ROWS_H_
