// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/hdf5_file.h"

#include <hdf5_hl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "frontends/caffe/proto/hdf5_chunks.h"
#include "frontends/caffe/proto/hdf5_library.h"

namespace poseidon::caffe {
namespace {

Status Unwritable() { return ResourceExhausted("the HDF5 library could not build the file, expected more memory"); }

// ---- writing

// A file in memory, in the library's oldest form, as Caffe writes it. (An image of a newer form would have a wrong
// checksum: the library clears a flag behind it.)
class MemoryFile {
 public:
  MemoryFile() {
    const Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    if (!access.ok() || H5Pset_fapl_core(access.get(), std::size_t{1} << 20, 0) < 0) return;
    file_ = H5Fcreate("in memory", H5F_ACC_TRUNC, H5P_DEFAULT, access.get());
  }
  ~MemoryFile() {
    if (file_ >= 0) H5Fclose(file_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  bool ok() const { return file_ >= 0; }
  hid_t get() const { return file_; }

  Result<std::string> Bytes() const {
    if (H5Fflush(file_, H5F_SCOPE_GLOBAL) < 0) return Unwritable();
    const ssize_t size = H5Fget_file_image(file_, nullptr, 0);
    if (size < 0) return Unwritable();
    std::string bytes(static_cast<std::size_t>(size), '\0');
    if (H5Fget_file_image(file_, bytes.data(), bytes.size()) != size) return Unwritable();
    return bytes;
  }

 private:
  hid_t file_ = H5I_INVALID_HID;
};

hid_t CreateGroup(hid_t in, const std::string& name) {
  const Hdf5Id links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  if (!links.ok() || H5Pset_create_intermediate_group(links.get(), 1) < 0) return H5I_INVALID_HID;
  return H5Gcreate2(in, name.c_str(), links.get(), H5P_DEFAULT, H5P_DEFAULT);
}

Status WriteBlob(hid_t group, int index, const BlobProto& blob) {
  std::vector<hsize_t> extents(blob.shape().dim().begin(), blob.shape().dim().end());
  const auto rank = static_cast<int>(extents.size());
  hsize_t numbers = 1;
  for (const hsize_t extent : extents) numbers *= extent;
  const int given = blob.double_data_size() > 0 ? blob.double_data_size() : blob.data_size();
  if (numbers != static_cast<hsize_t>(given)) return InvalidArgument("a blob's numbers are not as many as its shape says");
  const std::string name = std::to_string(index);
  const herr_t made =
      blob.double_data_size() > 0
          ? H5LTmake_dataset_double(group, name.c_str(), rank, extents.data(), blob.double_data().data())
          : H5LTmake_dataset_float(group, name.c_str(), rank, extents.data(), blob.data().data());
  return made < 0 ? Unwritable() : OkStatus();
}

Status WriteInt(hid_t file, const char* name, int value) {
  const hsize_t one = 1;
  return H5LTmake_dataset_int(file, name, 1, &one, &value) < 0 ? Unwritable() : OkStatus();
}

Status WriteText(hid_t file, const char* name, const std::string& text) {
  return H5LTmake_dataset_string(file, name, text.c_str()) < 0 ? Unwritable() : OkStatus();
}

Status WriteLayers(hid_t file, const NetParameter& model) {
  const Hdf5Id data(CreateGroup(file, "data"), H5Gclose);
  if (!data.ok()) return Unwritable();
  for (const LayerParameter& layer : model.layer()) {
    // A layer without blobs too; its name may be the beginning of another's path.
    const bool exists = H5Lexists(data.get(), layer.name().c_str(), H5P_DEFAULT) > 0;
    if (exists && layer.blobs_size() == 0) continue;
    const Hdf5Id group(exists ? H5Gopen2(data.get(), layer.name().c_str(), H5P_DEFAULT)
                          : CreateGroup(data.get(), layer.name()),
                   H5Gclose);
    for (int i = 0; i < layer.blobs_size(); ++i) {
      if (!group.ok() || H5Lexists(group.get(), std::to_string(i).c_str(), H5P_DEFAULT) != 0) {
        return InvalidArgument("layer '" + layer.name() +
                               "' has no place in an HDF5 file, expected layers whose names differ");
      }
      POSEIDON_RETURN_IF_ERROR(WriteBlob(group.get(), i, layer.blobs(i)));
    }
  }
  return OkStatus();
}

Status WriteHistory(hid_t file, const SolverState& state) {
  const Hdf5Id history(CreateGroup(file, "history"), H5Gclose);
  if (!history.ok()) return Unwritable();
  for (int i = 0; i < state.history_size(); ++i) {
    POSEIDON_RETURN_IF_ERROR(WriteBlob(history.get(), i, state.history(i)));
  }
  return OkStatus();
}

// ---- reading

// A file that is read, opened over its bytes: the library neither locks nor maps it.
class Reader {
 public:
  static Result<std::unique_ptr<Reader>> Open(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return NotFound("cannot open " + path);
    std::unique_ptr<Reader> reader(new Reader(path));
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (error) return DataLoss("cannot read " + path + ": " + error.message());
    reader->bytes_.resize(size);
    if (!file.read(reader->bytes_.data(), static_cast<std::streamsize>(size))) {
      return DataLoss("cannot read " + path);
    }
    reader->file_ = H5LTopen_file_image(reader->bytes_.data(), reader->bytes_.size(),
                                        H5LT_FILE_IMAGE_DONT_COPY | H5LT_FILE_IMAGE_DONT_RELEASE);
    if (reader->file_ < 0) return DataLoss(path + " is not a whole HDF5 file");
    return reader;
  }
  ~Reader() {
    if (file_ >= 0) H5Fclose(file_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  hid_t file() const { return file_; }
  Status Fail(const std::string& what) const { return DataLoss(path_ + ": " + what); }
  bool Has(const std::string& name) const { return H5Lexists(file_, name.c_str(), H5P_DEFAULT) > 0; }

  Result<int> Int(const std::string& name) const {
    const Hdf5Id set(OpenDataset(name), H5Dclose);
    const Hdf5Id space(set.ok() ? H5Dget_space(set.get()) : H5I_INVALID_HID, H5Sclose);
    int value = 0;
    if (!space.ok() || H5Sget_simple_extent_npoints(space.get()) != 1 ||
        H5Dread(set.get(), H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value) < 0) {
      return Fail("/" + name + " cannot be read, expected one integer");
    }
    return value;
  }

  Result<std::string> Text(const std::string& name) const {
    const Hdf5Id set(OpenDataset(name), H5Dclose);
    const Hdf5Id space(set.ok() ? H5Dget_space(set.get()) : H5I_INVALID_HID, H5Sclose);
    const Hdf5Id type(set.ok() ? H5Dget_type(set.get()) : H5I_INVALID_HID, H5Tclose);
    const bool fixed = space.ok() && type.ok() && H5Sget_simple_extent_npoints(space.get()) == 1 &&
                       H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0;
    const std::size_t size = fixed ? H5Tget_size(type.get()) : 0;
    std::string text(size <= bytes_.size() ? size : 0, '\0');
    if (text.empty() || H5Dread(set.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()) < 0) {
      return Fail("/" + name + " cannot be read, expected a string");
    }
    text.resize(std::min(text.size(), text.find('\0')));
    return text;
  }

  Status Blob(const std::string& name, BlobProto* blob) const {
    const auto fail = [&](const std::string& what) { return Fail("/" + name + " " + what); };
    const Hdf5Id set(OpenDataset(name), H5Dclose);
    const Hdf5Id space(set.ok() ? H5Dget_space(set.get()) : H5I_INVALID_HID, H5Sclose);
    const Hdf5Id type(set.ok() ? H5Dget_type(set.get()) : H5I_INVALID_HID, H5Tclose);
    if (!space.ok() || !type.ok()) return fail("cannot be read, expected numbers");
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (!IsHdf5Number(type.get()) || rank < 0 || rank > H5S_MAX_RANK) return fail("is no array of numbers");
    std::array<hsize_t, H5S_MAX_RANK> extents{};
    H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
    // Even packed, a byte of the file is at most a thousand numbers.
    const std::uint64_t bound =
        std::min<std::uint64_t>(std::numeric_limits<int>::max(), std::uint64_t{bytes_.size()} * 1024);
    std::uint64_t numbers = 1;
    for (int axis = 0; axis < rank; ++axis) {
      const hsize_t extent = extents[static_cast<std::size_t>(axis)];
      if (extent > bound || (extent > 0 && numbers > bound / extent)) return fail("has more numbers than the file");
      numbers *= extent;
      blob->mutable_shape()->add_dim(static_cast<std::int64_t>(extent));
    }
    if (rank == 0) blob->mutable_shape();
    const std::vector<hsize_t> shape(extents.begin(), extents.begin() + rank);
    Status read;
    if (H5Tget_class(type.get()) == H5T_FLOAT && H5Tget_size(type.get()) > sizeof(float)) {
      blob->mutable_double_data()->Resize(static_cast<int>(numbers), 0);
      read = Numbers(set.get(), type.get(), shape, H5T_NATIVE_DOUBLE, sizeof(double), blob->mutable_double_data()->mutable_data());
    } else {
      blob->mutable_data()->Resize(static_cast<int>(numbers), 0);
      read = Numbers(set.get(), type.get(), shape, H5T_NATIVE_FLOAT, sizeof(float), blob->mutable_data()->mutable_data());
    }
    return read.ok() ? read : fail(read.message());
  }

 private:
  // Its id, or none where it is not there, or in another file.
  hid_t OpenDataset(const std::string& name) const {
    const hid_t set = H5Dopen2(file_, name.c_str(), H5P_DEFAULT);
    if (set < 0 || IsInFile(set, file_)) return set;
    H5Dclose(set);
    return H5I_INVALID_HID;
  }

  // All numbers of a dataset, as the library's type `native` of `size` bytes.
  Status Numbers(hid_t set, hid_t type, const std::vector<hsize_t>& shape, hid_t native, std::size_t size, void* out) const {
    std::uint64_t numbers = 1;
    for (const hsize_t extent : shape) numbers *= extent;
    if (numbers == 0) return OkStatus();
    const Hdf5Id create(H5Dget_create_plist(set), H5Pclose);
    if (!create.ok()) return DataLoss("cannot be read");
    if (H5Pget_layout(create.get()) == H5D_CHUNKED) {
      POSEIDON_ASSIGN_OR_RETURN(Hdf5Chunks chunks, Hdf5Chunks::Open(set, type, create.get(), shape, bytes_.size(), /*most_kept=*/0));
      return chunks.Read(0, shape[0], native, size, static_cast<unsigned char*>(out));
    }
    const bool read = IsStoredWhole(set, type, numbers) && H5Dread(set, native, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) >= 0;
    return read ? OkStatus() : DataLoss("cannot be read");
  }

  explicit Reader(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  std::string bytes_;
  hid_t file_ = H5I_INVALID_HID;
};

// How many blobs a layer may have, and a state for each slot.
constexpr int kMostBlobs = 1 << 20;

std::optional<int> IndexIn(const std::string& text) {
  int index = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, index);
  if (parsed.ec != std::errc() || parsed.ptr != end || index < 0 || index >= kMostBlobs) return std::nullopt;
  return index;
}

// Hard links only: others may lead out of the file.
herr_t ListName(hid_t, const char* name, const H5L_info_t* info, void* names) {
  if (info->type == H5L_TYPE_HARD) static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

bool IsDataset(hid_t file, const std::string& name) {
  const Hdf5Id object(H5Oopen(file, name.c_str(), H5P_DEFAULT), H5Oclose);
  return object.ok() && H5Iget_type(object.get()) == H5I_DATASET;
}

}  // namespace

// Everything is closed by its owner. At the program's end the library would close what damaged files made it keep, and print
// that it cannot.
Mutex& Hdf5Mutex() {
  static Mutex mutex;
  [[maybe_unused]] static const herr_t quiet_at_exit = H5dont_atexit();
  return mutex;
}

bool IsHdf5(const std::string& path) {
  std::array<char, 8> head{};
  std::ifstream(path, std::ios::binary).read(head.data(), head.size());
  return std::memcmp(head.data(), "\x89HDF\r\n\x1a\n", head.size()) == 0;
}

Result<std::string> ToHdf5(const NetParameter& model) {
  const Hdf5Calls calls;
  MemoryFile file;
  if (!file.ok()) return Unwritable();
  POSEIDON_RETURN_IF_ERROR(WriteLayers(file.get(), model));
  return file.Bytes();
}

Result<std::string> ToHdf5(const SolverState& state) {
  const Hdf5Calls calls;
  MemoryFile file;
  if (!file.ok()) return Unwritable();
  POSEIDON_RETURN_IF_ERROR(WriteInt(file.get(), "iter", state.iter()));
  POSEIDON_RETURN_IF_ERROR(WriteText(file.get(), "learned_net", state.learned_net()));
  POSEIDON_RETURN_IF_ERROR(WriteInt(file.get(), "current_step", state.current_step()));
  if (state.has_weights_hash()) {
    POSEIDON_RETURN_IF_ERROR(WriteText(file.get(), "weights_hash", state.weights_hash()));
  }
  if (state.has_plan()) POSEIDON_RETURN_IF_ERROR(WriteText(file.get(), "plan", state.plan()));
  if (state.has_solver_type()) POSEIDON_RETURN_IF_ERROR(WriteText(file.get(), "solver_type", state.solver_type()));
  POSEIDON_RETURN_IF_ERROR(WriteHistory(file.get(), state));
  return file.Bytes();
}

Result<NetParameter> ReadHdf5Model(const std::string& path) {
  const Hdf5Calls calls;
  POSEIDON_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::Open(path));
  std::vector<std::string> names;
  if (!reader->Has("data") && reader->Has("history")) {
    return reader->Fail("holds a solver's state, expected a model's weights; --snapshot resumes from a state");
  }
  if (!reader->Has("data") || H5Lvisit_by_name(reader->file(), "data", H5_INDEX_NAME, H5_ITER_INC, ListName,
                                               &names, H5P_DEFAULT) < 0) {
    return reader->Fail("holds no model, expected a group 'data'");
  }
  std::map<std::string, std::map<int, std::string>> layers;
  for (const std::string& name : names) {
    const std::size_t slash = name.rfind('/');
    if (slash == std::string::npos || !IsDataset(reader->file(), "data/" + name)) continue;
    if (const auto index = IndexIn(name.substr(slash + 1))) layers[name.substr(0, slash)][*index] = "data/" + name;
  }
  NetParameter model;
  for (const auto& [name, blobs] : layers) {
    LayerParameter* const layer = model.add_layer();
    layer->set_name(name);
    for (const auto& [index, dataset] : blobs) {
      while (layer->blobs_size() <= index) layer->add_blobs();
      POSEIDON_RETURN_IF_ERROR(reader->Blob(dataset, layer->mutable_blobs(index)));
    }
  }
  return model;
}

Result<SolverState> ReadHdf5State(const std::string& path) {
  const Hdf5Calls calls;
  POSEIDON_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::Open(path));
  SolverState state;
  if (!reader->Has("iter") && reader->Has("data")) {
    return reader->Fail("holds a model's weights, expected a solver state; --weights begins with weights");
  }
  POSEIDON_ASSIGN_OR_RETURN(const int iteration, reader->Int("iter"));
  POSEIDON_ASSIGN_OR_RETURN(const int current_step, reader->Int("current_step"));
  state.set_iter(iteration);
  state.set_current_step(current_step);
  if (reader->Has("learned_net")) {
    POSEIDON_ASSIGN_OR_RETURN(*state.mutable_learned_net(), reader->Text("learned_net"));
  }
  if (reader->Has("weights_hash")) {
    POSEIDON_ASSIGN_OR_RETURN(*state.mutable_weights_hash(), reader->Text("weights_hash"));
  }
  if (reader->Has("plan")) {
    POSEIDON_ASSIGN_OR_RETURN(*state.mutable_plan(), reader->Text("plan"));
  }
  if (reader->Has("solver_type")) {
    POSEIDON_ASSIGN_OR_RETURN(*state.mutable_solver_type(), reader->Text("solver_type"));
  }
  const Hdf5Id history(H5Gopen2(reader->file(), "history", H5P_DEFAULT), H5Gclose);
  H5G_info_t info{};
  if (!history.ok() || H5Gget_info(history.get(), &info) < 0 || info.nlinks > kMostBlobs) {
    return reader->Fail("holds no solver state, expected a group 'history'");
  }
  for (hsize_t i = 0; i < info.nlinks; ++i) {
    POSEIDON_RETURN_IF_ERROR(reader->Blob("history/" + std::to_string(i), state.add_history()));
  }
  return state;
}

}  // namespace poseidon::caffe
