// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_HDF5_LIST_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_HDF5_LIST_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontends/caffe/data/epoch_order.h"
#include "frontends/caffe/proto/hdf5_rows.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// The bits by which epoch `epoch` orders the files, as list 0, and the rows of file f, as list 1 + f. Pure: all workers have the same.
using ListDraw = std::function<EpochBits(std::uint64_t epoch, std::uint64_t list)>;

// The rows of HDF5 files that a text file lists, read a batch at a time.
//
// Samples are numbered along an endless sequence, the rows of all files over and over: sample g is row g mod rows() of
// epoch g / rows(). Without shuffling, an epoch has the files in the list's order and their rows in theirs; else both are
// drawn anew for each epoch, by the epoch's number alone. Only one file is open at a time.
//
// Thread: one at a time.
class Hdf5List {
 public:
  struct Options {
    std::string list;                   // names of files with white space between them
    std::vector<std::string> datasets;  // with equally many rows in each file, and rows of one shape in all
    ListDraw shuffle;                   // null: rows come in order; else a file has less than 2^32
  };

  // Opens every file once and checks it. A name that does not exist is looked for beside the list, too. Errors name the
  // list, the file and the dataset.
  static Result<std::unique_ptr<Hdf5List>> Open(Options options);

  std::uint64_t rows() const { return begins_.back(); }
  // The axes behind the first one.
  const std::vector<std::int64_t>& row_shape(std::size_t dataset) const { return row_shapes_[dataset]; }

  // Fills tops[i], contiguous, float or double, [rows, row_shape(i)...], with the samples from `first` on.
  Status Read(std::uint64_t first, const std::vector<at::Tensor>& tops);
  // "row 3 of train.h5"
  std::string NameOf(std::uint64_t sample);

 private:
  struct Place {
    std::size_t file;
    std::uint64_t row;
    std::uint64_t in_order;  // how many rows from this one on follow each other in the file and in the sequence
  };

  explicit Hdf5List(Options options) : options_(std::move(options)) {}
  Status ReadNames();
  Status CheckFile(std::size_t file);
  Result<std::unique_ptr<Hdf5RowReader>> OpenFile(std::size_t file) const;
  Status InList(const Status& status) const { return status.WithPrefix("list " + options_.list); }
  Status Reopen(std::size_t file);
  Place PlaceOf(std::uint64_t sample);
  void SetEpoch(std::uint64_t epoch);
  void SetSlot(std::size_t slot);

  const Options options_;
  std::vector<std::string> files_;
  std::vector<std::uint64_t> file_rows_;
  std::vector<std::vector<std::int64_t>> row_shapes_;

  std::optional<std::uint64_t> epoch_;
  std::vector<std::uint32_t> order_;   // the files of the epoch
  std::vector<std::uint64_t> begins_;  // where each of them begins in the epoch, and where the epoch ends
  std::optional<std::size_t> slot_;    // in order_, whose rows row_order_ has
  std::vector<std::uint32_t> row_order_;

  std::optional<std::size_t> open_;  // the file that reader_ reads
  std::unique_ptr<Hdf5RowReader> reader_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_HDF5_LIST_H_
