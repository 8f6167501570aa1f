// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "frontends/caffe/proto/hdf5_library.h"
#include "frontends/caffe/proto/hdf5_rows.h"

namespace poseidon::caffe {
namespace {

constexpr hsize_t kChunkBytes = hsize_t{16} << 20;  // about what one chunk of a dataset takes at most

class RowWriter final : public Hdf5RowWriter {
 public:
  explicit RowWriter(std::string path) : path_(std::move(path)) {}
  ~RowWriter() override {
    const Hdf5Calls calls;
    sets_.clear();
    file_.reset();
  }

  Status Create() {
    const Hdf5Calls calls;
    file_ = std::make_unique<Hdf5Id>(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
    if (file_->ok()) return OkStatus();
    return PermissionDenied("cannot make " + path_ + ", expected a folder that can be written and no other layer with that file");
  }

  Status Append(const std::string& name, const std::vector<std::int64_t>& shape, const float* numbers) override {
    return AppendAs(name, shape, H5T_NATIVE_FLOAT, sizeof(float), numbers);
  }
  Status Append(const std::string& name, const std::vector<std::int64_t>& shape, const double* numbers) override {
    return AppendAs(name, shape, H5T_NATIVE_DOUBLE, sizeof(double), numbers);
  }

  Status Flush() override {
    const Hdf5Calls calls;
    if (H5Fflush(file_->get(), H5F_SCOPE_GLOBAL) < 0) return ResourceExhausted("cannot write " + path_);
    return OkStatus();
  }

 private:
  struct Growing {
    std::unique_ptr<Hdf5Id> set;
    std::vector<hsize_t> extents;  // as they are now
  };

  Status Fail(const std::string& name, const std::string& what) const {
    return ResourceExhausted(path_ + ": dataset '" + name + "' " + what);
  }

  Status AppendAs(const std::string& name, const std::vector<std::int64_t>& shape, hid_t type, std::size_t bytes,
                  const void* numbers) {
    std::vector<hsize_t> part(shape.begin(), shape.end());
    const Hdf5Calls calls;
    auto found = sets_.find(name);
    if (found == sets_.end()) {
      POSEIDON_ASSIGN_OR_RETURN(Growing made, Make(name, part, type, bytes));
      found = sets_.emplace(name, std::move(made)).first;
    }
    Growing& growing = found->second;
    if (growing.extents.size() != part.size() || !std::equal(part.begin() + 1, part.end(), growing.extents.begin() + 1)) {
      return Fail(name, "has rows of one shape, expected no others");
    }
    std::vector<hsize_t> start(part.size(), 0);
    start[0] = growing.extents[0];
    if (std::find(part.begin(), part.end(), 0) != part.end()) return OkStatus();
    growing.extents[0] += part[0];
    if (H5Dset_extent(growing.set->get(), growing.extents.data()) < 0) return Fail(name, "cannot grow");
    const Hdf5Id to(H5Dget_space(growing.set->get()), H5Sclose);
    const Hdf5Id from(H5Screate_simple(static_cast<int>(part.size()), part.data(), nullptr), H5Sclose);
    if (!to.ok() || !from.ok() ||
        H5Sselect_hyperslab(to.get(), H5S_SELECT_SET, start.data(), nullptr, part.data(), nullptr) < 0 ||
        H5Dwrite(growing.set->get(), type, from.get(), to.get(), H5P_DEFAULT, numbers) < 0) {
      return Fail(name, "cannot be written");
    }
    return OkStatus();
  }

  // An empty dataset of such rows. A dataset that grows is made of chunks, here about as large as the first part.
  Result<Growing> Make(const std::string& name, const std::vector<hsize_t>& part, hid_t type, std::size_t bytes) const {
    Growing growing;
    growing.extents = part;
    growing.extents[0] = 0;
    std::vector<hsize_t> most = part;
    most[0] = H5S_UNLIMITED;
    std::vector<hsize_t> chunk = part;
    hsize_t row = bytes;
    for (std::size_t axis = 1; axis < chunk.size(); ++axis) {
      chunk[axis] = std::max<hsize_t>(1, chunk[axis]);
      row *= chunk[axis];
    }
    chunk[0] = std::clamp<hsize_t>(kChunkBytes / row, 1, std::max<hsize_t>(1, part[0]));
    const int rank = static_cast<int>(part.size());
    const Hdf5Id space(H5Screate_simple(rank, growing.extents.data(), most.data()), H5Sclose);
    const Hdf5Id how(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    if (!space.ok() || !how.ok() || H5Pset_chunk(how.get(), rank, chunk.data()) < 0) {
      return Fail(name, "cannot be made");
    }
    growing.set = std::make_unique<Hdf5Id>(
        H5Dcreate2(file_->get(), name.c_str(), type, space.get(), H5P_DEFAULT, how.get(), H5P_DEFAULT), H5Dclose);
    if (!growing.set->ok()) return Fail(name, "cannot be made");
    return growing;
  }

  const std::string path_;
  std::unique_ptr<Hdf5Id> file_;
  std::map<std::string, Growing> sets_;
};

}  // namespace

Result<std::unique_ptr<Hdf5RowWriter>> Hdf5RowWriter::Create(const std::string& path) {
  auto writer = std::make_unique<RowWriter>(path);
  POSEIDON_RETURN_IF_ERROR(writer->Create());
  return std::unique_ptr<Hdf5RowWriter>(std::move(writer));
}

}  // namespace poseidon::caffe
