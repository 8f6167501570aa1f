// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "frontends/caffe/proto/hdf5_chunks.h"
#include "frontends/caffe/proto/hdf5_library.h"
#include "frontends/caffe/proto/hdf5_rows.h"

namespace poseidon::caffe {
namespace {

constexpr std::size_t kMostKept = std::size_t{256} << 20;  // bytes of a dataset's chunks kept unpacked

struct RowDataset {
  RowDataset(hid_t file, std::string dataset_name)
      : name(std::move(dataset_name)),
        set(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose),
        type(set.ok() ? H5Dget_type(set.get()) : H5I_INVALID_HID, H5Tclose),
        create(set.ok() ? H5Dget_create_plist(set.get()) : H5I_INVALID_HID, H5Pclose) {}
  std::string name;
  Hdf5Id set;
  Hdf5Id type;
  Hdf5Id create;
  std::optional<Hdf5Chunks> chunks;  // where it is stored in some
  std::uint64_t rows = 0;
  std::uint64_t numbers = 1;  // of one row
  std::vector<std::int64_t> shape;
};

class RowReader final : public Hdf5RowReader {
 public:
  explicit RowReader(std::string path) : path_(std::move(path)) {}
  ~RowReader() override {
    const Hdf5Calls calls;
    sets_.clear();
    file_.reset();
  }

  std::uint64_t rows() const override { return sets_.front()->rows; }
  const std::vector<std::int64_t>& row_shape(std::size_t dataset) const override { return sets_[dataset]->shape; }
  Status Read(std::size_t dataset, std::uint64_t first, std::uint64_t count, float* out) override {
    return ReadAs(dataset, first, count, H5T_NATIVE_FLOAT, sizeof(float), out);
  }
  Status Read(std::size_t dataset, std::uint64_t first, std::uint64_t count, double* out) override {
    return ReadAs(dataset, first, count, H5T_NATIVE_DOUBLE, sizeof(double), out);
  }

  Status Open(const std::vector<std::string>& names, Hdf5Access access) {
    std::error_code error;
    if (!std::filesystem::exists(path_, error)) return NotFound("cannot open " + path_);
    if (!std::filesystem::is_regular_file(path_, error)) return InvalidArgument(path_ + " is no file");
    bytes_ = std::filesystem::file_size(path_, error);
    if (error) return DataLoss("cannot read " + path_ + ": " + error.message());
    const Hdf5Calls calls;
    const Hdf5Id how(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
#if H5_VERSION_GE(1, 14, 0) || (H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 10 && H5_VERS_RELEASE >= 7)
    // Nobody writes to the file; a lock would only fail on folders that have none.
    H5Pset_file_locking(how.get(), /*use_file_locking=*/false, /*ignore_when_disabled=*/true);
#endif
    file_ = std::make_unique<Hdf5Id>(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, how.get()), H5Fclose);
    if (!file_->ok()) return DataLoss(path_ + " is not a whole HDF5 file");
    for (const std::string& name : names) POSEIDON_RETURN_IF_ERROR(OpenDataset(name, access));
    for (const auto& set : sets_) {
      if (set->rows == sets_.front()->rows) continue;
      return Fail(*set, "has " + std::to_string(set->rows) + " rows, dataset '" + sets_.front()->name + "' has " +
                            std::to_string(sets_.front()->rows));
    }
    return OkStatus();
  }

 private:
  Status Fail(const RowDataset& set, const std::string& what) const {
    return DataLoss(path_ + ": dataset '" + set.name + "' " + what);
  }

  Status OpenDataset(const std::string& name, Hdf5Access access) {
    sets_.push_back(std::make_unique<RowDataset>(file_->get(), name));
    RowDataset& set = *sets_.back();
    if (!set.set.ok()) return NotFound(path_ + " has no dataset '" + name + "'");
    const Hdf5Id space(H5Dget_space(set.set.get()), H5Sclose);
    if (!set.type.ok() || !set.create.ok() || !space.ok()) return Fail(set, "cannot be read");
    if (!IsInFile(set.set.get(), file_->get())) return Fail(set, "is in another file, expected it in this one");
    if (!IsHdf5Number(set.type.get())) return Fail(set, "does not hold floats or integers");
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (rank < 1 || rank > H5S_MAX_RANK) return Fail(set, "has no axes, expected one or more, the first of rows");
    std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
    H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
    POSEIDON_RETURN_IF_ERROR(SetShape(extents, &set));
    if (H5Pget_layout(set.create.get()) == H5D_CHUNKED) return OpenChunks(std::move(extents), access, &set);
    if (!IsStoredWhole(set.set.get(), set.type.get(), set.rows * set.numbers)) return Fail(set, "is not as long as its shape says");
    return OkStatus();
  }

  // In order, a row of chunks is needed again; at random, all of them.
  Status OpenChunks(std::vector<hsize_t> extents, Hdf5Access access, RowDataset* set) {
    const std::size_t kept = access == Hdf5Access::kAtRandom ? kMostKept : kMostKept / 4;
    auto chunks = Hdf5Chunks::Open(set->set.get(), set->type.get(), set->create.get(), std::move(extents), bytes_, kept);
    if (!chunks.ok()) return Fail(*set, chunks.status().message());
    set->chunks = std::move(chunks).value();
    return OkStatus();
  }

  Status SetShape(const std::vector<hsize_t>& extents, RowDataset* set) const {
    // Even packed, a byte of the file is at most a thousand numbers.
    const std::uint64_t bound = std::min<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / 1024, bytes_) * 1024;
    std::uint64_t numbers = 1;
    for (std::size_t axis = 0; axis < extents.size(); ++axis) {
      const hsize_t extent = extents[axis];
      if (extent > bound || (extent > 0 && numbers > bound / extent)) return Fail(*set, "has more numbers than the file");
      numbers *= extent;
      if (axis == 0) {
        set->rows = extent;
        continue;
      }
      set->shape.push_back(static_cast<std::int64_t>(extent));
      set->numbers *= extent;
    }
    return OkStatus();
  }

  Status ReadAs(std::size_t dataset, std::uint64_t first, std::uint64_t count, hid_t type, std::size_t size, void* out) {
    RowDataset& set = *sets_[dataset];
    if (count == 0 || set.numbers == 0) return OkStatus();
    const Hdf5Calls calls;
    if (set.chunks) {
      const Status read = set.chunks->Read(first, count, type, size, static_cast<unsigned char*>(out));
      return read.ok() ? read : Fail(set, read.message());
    }
    const Hdf5Id from(H5Dget_space(set.set.get()), H5Sclose);
    std::array<hsize_t, H5S_MAX_RANK> start{};
    std::array<hsize_t, H5S_MAX_RANK> extent{};
    start[0] = first;
    extent[0] = count;
    for (std::size_t axis = 0; axis < set.shape.size(); ++axis) extent[axis + 1] = static_cast<hsize_t>(set.shape[axis]);
    const hsize_t numbers = count * set.numbers;
    const Hdf5Id to(H5Screate_simple(1, &numbers, nullptr), H5Sclose);
    if (!from.ok() || !to.ok() ||
        H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr) < 0 ||
        H5Dread(set.set.get(), type, to.get(), from.get(), H5P_DEFAULT, out) < 0) {
      return Fail(set, "cannot be read at row " + std::to_string(first));
    }
    return OkStatus();
  }

  const std::string path_;
  std::uint64_t bytes_ = 0;
  std::unique_ptr<Hdf5Id> file_;
  std::vector<std::unique_ptr<RowDataset>> sets_;
};

}  // namespace

Result<std::unique_ptr<Hdf5RowReader>> Hdf5RowReader::Open(const std::string& path, const std::vector<std::string>& names,
                                                           Hdf5Access access) {
  auto reader = std::make_unique<RowReader>(path);
  POSEIDON_RETURN_IF_ERROR(reader->Open(names, access));
  return std::unique_ptr<Hdf5RowReader>(std::move(reader));
}

}  // namespace poseidon::caffe
