// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/hdf5_list.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <system_error>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::caffe {
namespace {

namespace fs = std::filesystem;

std::string ShapeOfRow(const std::vector<std::int64_t>& shape) {
  if (shape.empty()) return "single numbers";
  std::string text;
  for (const std::int64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return "shape " + text;
}

template <typename T>
Status ReadInto(Hdf5RowReader* reader, std::size_t dataset, std::uint64_t row, std::uint64_t count, std::int64_t offset,
                const at::Tensor& top) {
  return reader->Read(dataset, row, count, top.mutable_data_ptr<T>() + offset);
}

}  // namespace

Result<std::unique_ptr<Hdf5List>> Hdf5List::Open(Options options) {
  POSEIDON_CHECK(!options.datasets.empty(), "a list is read for datasets");
  std::unique_ptr<Hdf5List> list(new Hdf5List(std::move(options)));
  POSEIDON_RETURN_IF_ERROR(list->ReadNames());
  for (std::size_t file = 0; file < list->files_.size(); ++file) {
    if (const Status checked = list->CheckFile(file); !checked.ok()) return list->InList(checked);
  }
  list->SetEpoch(0);
  if (list->rows() == 0) return list->InList(DataLoss("the files have no rows"));
  return list;
}

Status Hdf5List::ReadNames() {
  std::error_code error;
  std::ifstream list(options_.list);
  if (!list || fs::is_directory(options_.list, error)) return NotFound("cannot open the list of HDF5 files " + options_.list);
  const fs::path folder = fs::path(options_.list).parent_path();
  std::string name;
  while (list >> name) {
    const fs::path beside = folder / name;
    const bool found = fs::exists(name, error) || !fs::exists(beside, error);
    files_.push_back(found ? name : beside.string());
  }
  if (list.bad()) return DataLoss("cannot read the list of HDF5 files " + options_.list);
  if (files_.empty()) return InvalidArgument("the list of HDF5 files " + options_.list + " names no file");
  return OkStatus();
}

Result<std::unique_ptr<Hdf5RowReader>> Hdf5List::OpenFile(std::size_t file) const {
  return Hdf5RowReader::Open(files_[file], options_.datasets,
                             options_.shuffle ? Hdf5Access::kAtRandom : Hdf5Access::kInOrder);
}

// The first file says what rows look like.
Status Hdf5List::CheckFile(std::size_t file) {
  POSEIDON_ASSIGN_OR_RETURN(const auto reader, OpenFile(file));
  for (std::size_t i = 0; i < options_.datasets.size(); ++i) {
    const std::vector<std::int64_t>& shape = reader->row_shape(i);
    if (file == 0) row_shapes_.push_back(shape);
    if (shape == row_shapes_[i]) continue;
    return DataLoss(files_[file] + ": dataset '" + options_.datasets[i] + "' has rows of " + ShapeOfRow(shape) + ", expected " +
                    ShapeOfRow(row_shapes_[i]) + " as in " + files_[0]);
  }
  if (options_.shuffle && reader->rows() >> 32 != 0) {
    return Unimplemented(files_[file] + " has " + std::to_string(reader->rows()) + " rows, expected less than 2^32 to be shuffled");
  }
  const std::uint64_t before = std::accumulate(file_rows_.begin(), file_rows_.end(), std::uint64_t{0});
  if (reader->rows() > std::numeric_limits<std::uint64_t>::max() / 4 - before) return DataLoss("the files have too many rows");
  file_rows_.push_back(reader->rows());
  return OkStatus();
}

void Hdf5List::SetEpoch(std::uint64_t epoch) {
  if (epoch_ == epoch || (epoch_ && !options_.shuffle)) return;
  epoch_ = epoch;
  slot_.reset();
  order_.resize(files_.size());
  std::iota(order_.begin(), order_.end(), std::uint32_t{0});
  if (options_.shuffle) order_ = ShuffledNumbers(files_.size(), options_.shuffle(epoch, 0));
  begins_.assign(1, 0);
  for (const std::size_t file : order_) begins_.push_back(begins_.back() + file_rows_[file]);
}

void Hdf5List::SetSlot(std::size_t slot) {
  if (slot_ == slot || !options_.shuffle) return;
  slot_ = slot;
  row_order_ = ShuffledNumbers(file_rows_[order_[slot]], options_.shuffle(*epoch_, 1 + order_[slot]));
}

Hdf5List::Place Hdf5List::PlaceOf(std::uint64_t sample) {
  SetEpoch(sample / rows());
  const std::uint64_t position = sample % rows();
  // The last file that begins at the position or before: files without rows begin there, too.
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), position);
  const auto slot = static_cast<std::size_t>(next - begins_.begin()) - 1;
  SetSlot(slot);
  const std::uint64_t row = position - begins_[slot];
  const std::uint64_t left = begins_[slot + 1] - position;
  Place place{.file = order_[slot], .row = row, .in_order = left};
  if (options_.shuffle) {
    place.row = row_order_[row];
    place.in_order = 1;
    while (place.in_order < left && row_order_[row + place.in_order] == place.row + place.in_order) ++place.in_order;
  }
  return place;
}

// Opens the file, unless it is the open one; its rows must be what they were when training began.
Status Hdf5List::Reopen(std::size_t file) {
  if (open_ == file) return OkStatus();
  open_.reset();
  reader_.reset();
  POSEIDON_ASSIGN_OR_RETURN(auto opened, OpenFile(file));
  bool same = opened->rows() == file_rows_[file];
  for (std::size_t i = 0; i < row_shapes_.size(); ++i) same = same && opened->row_shape(i) == row_shapes_[i];
  if (!same) return DataLoss(files_[file] + " has other rows than when training began");
  reader_ = std::move(opened);
  open_ = file;
  return OkStatus();
}

Status Hdf5List::Read(std::uint64_t first, const std::vector<at::Tensor>& tops) {
  const auto rows_wanted = static_cast<std::uint64_t>(tops[0].size(0));
  for (std::uint64_t done = 0; done < rows_wanted;) {
    const Place place = PlaceOf(first + done);
    const std::uint64_t count = std::min(place.in_order, rows_wanted - done);
    if (const Status opened = Reopen(place.file); !opened.ok()) return InList(opened);
    for (std::size_t i = 0; i < tops.size(); ++i) {
      const std::int64_t offset = static_cast<std::int64_t>(done) * (tops[i].numel() / tops[i].size(0));
      const Status read = tops[i].scalar_type() == at::kDouble
                              ? ReadInto<double>(reader_.get(), i, place.row, count, offset, tops[i])
                              : ReadInto<float>(reader_.get(), i, place.row, count, offset, tops[i]);
      if (!read.ok()) return InList(read);
    }
    done += count;
  }
  return OkStatus();
}

std::string Hdf5List::NameOf(std::uint64_t sample) {
  const Place place = PlaceOf(sample);
  return "row " + std::to_string(place.row) + " of " + files_[place.file] + ", counted from 0";
}

}  // namespace poseidon::caffe
