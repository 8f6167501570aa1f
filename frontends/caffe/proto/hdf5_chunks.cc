// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/hdf5_chunks.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "frontends/caffe/proto/hdf5_library.h"

namespace poseidon::caffe {
namespace {

// The next place in [begin, end), the last axis first; false behind the last one. Axes are stepped by `step`.
bool Advance(const std::vector<hsize_t>& begin, const std::vector<hsize_t>& end, const std::vector<hsize_t>& step,
             std::vector<hsize_t>* at) {
  for (std::size_t axis = at->size(); axis-- > 0;) {
    (*at)[axis] += step[axis];
    if ((*at)[axis] < end[axis]) return true;
    (*at)[axis] = begin[axis];
  }
  return false;
}

}  // namespace

bool IsHdf5Number(hid_t type) {
  for (const hid_t known : {H5T_IEEE_F32LE, H5T_IEEE_F64LE, H5T_IEEE_F32BE, H5T_IEEE_F64BE, H5T_STD_I8LE, H5T_STD_I16LE,
                            H5T_STD_I32LE, H5T_STD_I64LE, H5T_STD_U8LE, H5T_STD_U16LE, H5T_STD_U32LE, H5T_STD_U64LE,
                            H5T_STD_I8BE, H5T_STD_I16BE, H5T_STD_I32BE, H5T_STD_I64BE, H5T_STD_U8BE, H5T_STD_U16BE,
                            H5T_STD_U32BE, H5T_STD_U64BE}) {
    if (H5Tequal(type, known) > 0) return true;
  }
  if (H5Tget_class(type) != H5T_FLOAT || H5Tget_size(type) != 2 || H5Tget_precision(type) != 16) return false;
  std::size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
  return H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) >= 0 && sign == 15 &&
         exponent == 10 && exponent_bits == 5 && mantissa == 0 && mantissa_bits == 10;
}

bool IsInFile(hid_t set, hid_t file) {
  const auto name_of = [](hid_t id) {
    const ssize_t size = H5Fget_name(id, nullptr, 0);
    std::string name(static_cast<std::size_t>(std::max<ssize_t>(0, size)) + 1, '\0');
    H5Fget_name(id, name.data(), name.size());
    return name;
  };
  const Hdf5Id create(H5Dget_create_plist(set), H5Pclose);
  return create.ok() && H5Pget_layout(create.get()) != H5D_VIRTUAL && H5Pget_external_count(create.get()) == 0 &&
         name_of(set) == name_of(file);
}

bool IsStoredWhole(hid_t set, hid_t type, std::uint64_t numbers) {
  const std::uint64_t stored = H5Dget_storage_size(set);
  return stored == 0 || stored == numbers * H5Tget_size(type);
}

Result<Hdf5Chunks> Hdf5Chunks::Open(hid_t set, hid_t type, hid_t create, std::vector<hsize_t> extents,
                                    std::uint64_t file_bytes, std::size_t most_kept) {
  Hdf5Chunks chunks;
  chunks.set_ = set;
  chunks.type_ = type;
  chunks.create_ = create;
  chunks.chunk_.resize(extents.size());
  chunks.extents_ = std::move(extents);
  chunks.element_ = H5Tget_size(type);
  chunks.file_bytes_ = file_bytes;
  chunks.most_kept_ = most_kept;
  const int rank = static_cast<int>(chunks.chunk_.size());
  if (H5Pget_chunk(create, rank, chunks.chunk_.data()) != rank) return DataLoss("cannot be read");
  std::uint64_t numbers = 1;
  const std::uint64_t bound = std::numeric_limits<std::uint32_t>::max() / chunks.element_;  // the format's
  for (const hsize_t extent : chunks.chunk_) {
    if (extent == 0 || numbers > bound / extent) return DataLoss("has chunks of an absurd size");
    numbers *= extent;
  }
  chunks.numbers_ = numbers;
  for (int i = 0; i < H5Pget_nfilters(create); ++i) {
    unsigned flags = 0;
    std::size_t values = 0;
    unsigned config = 0;
    const H5Z_filter_t filter = H5Pget_filter2(create, static_cast<unsigned>(i), &flags, &values, nullptr, 0, nullptr, &config);
    if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE) {
      return Unimplemented("is packed by HDF5's filter " + std::to_string(filter) + ", expected none, gzip or shuffle");
    }
    chunks.filters_.push_back(filter);
  }
  return chunks;
}

Status Hdf5Chunks::Read(std::uint64_t first, std::uint64_t count, hid_t native, std::size_t size, unsigned char* out) {
  std::vector<hsize_t> begin(extents_.size(), 0);
  std::vector<hsize_t> end = extents_;
  begin[0] = first / chunk_[0] * chunk_[0];
  end[0] = first + count;
  std::vector<hsize_t> at = begin;
  do {
    POSEIDON_ASSIGN_OR_RETURN(const Bytes* const chunk, Converted(at, native, size));
    CopyRows(*chunk, at, first, count, size, out);
  } while (Advance(begin, end, chunk_, &at));
  return OkStatus();
}

// How many bytes the chunk that begins at `at` has in the file; 0: nobody wrote it. Of plain ones the quick call says what
// they should have.
Result<std::uint64_t> Hdf5Chunks::StoredBytes(const std::vector<hsize_t>& at) const {
  hsize_t stored = 0;
  unsigned skipped = 0;
  haddr_t address = 0;
  const herr_t done = filters_.empty() ? H5Dget_chunk_info_by_coord(set_, at.data(), &skipped, &address, &stored)
                                       : H5Dget_chunk_storage_size(set_, at.data(), &stored);
  const bool fits = filters_.empty() ? stored == 0 || stored == numbers_ * element_ : stored <= file_bytes_;
  if (done < 0 || !fits) return DataLoss("cannot be read at row " + std::to_string(at[0]));
  return std::uint64_t{stored};
}

// The chunk that begins at `at`, as the file's numbers.
Result<Hdf5Chunks::Bytes> Hdf5Chunks::Unpacked(const std::vector<hsize_t>& at) const {
  POSEIDON_ASSIGN_OR_RETURN(const std::uint64_t stored, StoredBytes(at));
  const std::string where = "cannot be read at row " + std::to_string(at[0]);
  const std::size_t whole = numbers_ * element_;
  if (stored == 0) {  // nobody wrote it
    if (whole / 1100 > file_bytes_) return DataLoss("has chunks of an absurd size");
    Bytes filled(whole);
    std::array<unsigned char, 8> value{};
    if (H5Pget_fill_value(create_, type_, value.data()) < 0) return DataLoss(where);
    for (std::size_t i = 0; i < numbers_; ++i) std::memcpy(filled.data() + i * element_, value.data(), element_);
    return filled;
  }
  Bytes bytes(stored);
  unsigned skipped = 0;
  if (H5Dread_chunk(set_, H5P_DEFAULT, at.data(), &skipped, bytes.data()) < 0) return DataLoss(where);
  if (const Status unpacked = Unpack(skipped, &bytes); !unpacked.ok()) return DataLoss(where + ": " + unpacked.message());
  return bytes;
}

Status Hdf5Chunks::Unpack(unsigned skipped, Bytes* bytes) const {
  const std::size_t whole = numbers_ * element_;
  for (std::size_t i = filters_.size(); i-- > 0;) {
    if (i < 32 && (skipped >> i & 1U) != 0) continue;
    if (filters_[i] == H5Z_FILTER_DEFLATE) {
      POSEIDON_RETURN_IF_ERROR(Inflate(bytes));
    } else if (bytes->size() == whole) {
      Unshuffle(bytes);
    }
  }
  if (bytes->size() != whole) {
    return DataLoss("a chunk has " + std::to_string(bytes->size()) + " bytes, expected " + std::to_string(whole));
  }
  return OkStatus();
}

Status Hdf5Chunks::Inflate(Bytes* bytes) const {
  const std::size_t whole = numbers_ * element_;
  if (whole / 1100 > bytes->size()) return DataLoss("a chunk has more numbers than its bytes hold");  // zlib packs 1032 to 1
  Bytes unpacked(whole);
  uLongf size = whole;
  if (::uncompress(unpacked.data(), &size, bytes->data(), bytes->size()) != Z_OK || size != whole) {
    return DataLoss("a chunk does not unpack to its " + std::to_string(whole) + " bytes");
  }
  *bytes = std::move(unpacked);
  return OkStatus();
}

// Packed: the first bytes of all numbers, then the second ones, and so on.
void Hdf5Chunks::Unshuffle(Bytes* bytes) const {
  Bytes ordered(bytes->size());
  for (std::size_t byte = 0; byte < element_; ++byte) {
    const unsigned char* from = bytes->data() + byte * numbers_;
    for (std::size_t i = 0; i < numbers_; ++i) ordered[i * element_ + byte] = from[i];
  }
  *bytes = std::move(ordered);
}

// The chunk as numbers of the caller's type. The pointer holds until the next call.
Result<const Hdf5Chunks::Bytes*> Hdf5Chunks::Converted(const std::vector<hsize_t>& at, hid_t native, std::size_t size) {
  if (const auto kept = kept_.find(at); kept != kept_.end()) return &kept->second;
  POSEIDON_ASSIGN_OR_RETURN(Bytes bytes, Unpacked(at));
  bytes.resize(numbers_ * std::max(element_, size));
  if (H5Tconvert(type_, native, numbers_, bytes.data(), nullptr, H5P_DEFAULT) < 0) return DataLoss("holds other numbers than it says");
  bytes.resize(numbers_ * size);
  kept_bytes_ += bytes.size();
  while (!oldest_.empty() && kept_bytes_ > most_kept_) {
    const auto old = kept_.find(oldest_.front());
    kept_bytes_ -= old->second.size();
    kept_.erase(old);
    oldest_.pop_front();
  }
  oldest_.push_back(at);
  return &kept_.emplace(at, std::move(bytes)).first->second;
}

// What of the rows [first, first + count) is in the chunk that begins at `at`.
void Hdf5Chunks::CopyRows(const Bytes& chunk, const std::vector<hsize_t>& at, std::uint64_t first, std::uint64_t count,
                          std::size_t size, unsigned char* out) const {
  const std::size_t rank = at.size();
  std::vector<hsize_t> begin = at;
  begin[0] = std::max<hsize_t>(at[0], first);
  std::vector<hsize_t> end(rank);
  for (std::size_t axis = 0; axis < rank; ++axis) {
    end[axis] = std::min<hsize_t>(at[axis] + chunk_[axis], axis == 0 ? first + count : extents_[axis]);
  }
  const std::size_t run = end[rank - 1] - begin[rank - 1];  // numbers side by side in both
  std::vector<hsize_t> step(rank, 1);
  step[rank - 1] = run;
  std::vector<hsize_t> place = begin;
  do {
    std::size_t from = 0;
    std::size_t to = 0;
    for (std::size_t axis = 0; axis < rank; ++axis) {
      from = from * chunk_[axis] + (place[axis] - at[axis]);
      to = to * (axis == 0 ? count : extents_[axis]) + (place[axis] - (axis == 0 ? first : 0));
    }
    std::memcpy(out + to * size, chunk.data() + from * size, run * size);
  } while (Advance(begin, end, step, &place));
}

}  // namespace poseidon::caffe
