// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_PROTO_HDF5_CHUNKS_H_
#define POSEIDON_FRONTENDS_CAFFE_PROTO_HDF5_CHUNKS_H_

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Whether `type` is one of the usual integers and floats, half ones too. The library converts any other, also an impossible
// one, and reads past its buffers for it.
bool IsHdf5Number(hid_t type);
// False where the layout or a link leads to another file than `file`, which nobody named.
bool IsInFile(hid_t set, hid_t file);
// Of a dataset that is not in chunks: whether it is as long as that many numbers, or nobody wrote it.
bool IsStoredWhole(hid_t set, hid_t type, std::uint64_t numbers);

// Rows of a dataset that is stored in chunks, plain or packed (gzip, with shuffle or without). The chunks are taken apart
// here: the library trusts that each is as long as the dataset states, and reads past its end where it is not. What was
// taken apart is kept as long as it takes at most `most_kept` bytes.
//
// Used by sources that hold Hdf5Calls. Errors are what is wrong, without file and dataset.
class Hdf5Chunks {
 public:
  // `set` has elements of `type` and the extents `extents`, one or more; `create` is its creation property list. The ids
  // outlive the object.
  static Result<Hdf5Chunks> Open(hid_t set, hid_t type, hid_t create, std::vector<hsize_t> extents, std::uint64_t file_bytes,
                                 std::size_t most_kept);

  // Writes rows [first, first + count), which are there, to `out` as numbers of the library's type `native`, `size`
  // bytes each; the same type in every call.
  Status Read(std::uint64_t first, std::uint64_t count, hid_t native, std::size_t size, unsigned char* out);

 private:
  using Bytes = std::vector<unsigned char>;

  Hdf5Chunks() = default;
  Result<std::uint64_t> StoredBytes(const std::vector<hsize_t>& at) const;
  Result<Bytes> Unpacked(const std::vector<hsize_t>& at) const;
  Status Unpack(unsigned skipped, Bytes* bytes) const;
  Status Inflate(Bytes* bytes) const;
  void Unshuffle(Bytes* bytes) const;
  Result<const Bytes*> Converted(const std::vector<hsize_t>& at, hid_t native, std::size_t size);
  void CopyRows(const Bytes& chunk, const std::vector<hsize_t>& at, std::uint64_t first, std::uint64_t count, std::size_t size,
                unsigned char* out) const;

  hid_t set_ = H5I_INVALID_HID;
  hid_t type_ = H5I_INVALID_HID;
  hid_t create_ = H5I_INVALID_HID;
  std::vector<hsize_t> extents_;
  std::vector<hsize_t> chunk_;
  std::vector<H5Z_filter_t> filters_;  // in the order of packing
  std::size_t element_ = 0;            // bytes in the file
  std::size_t numbers_ = 0;            // of one chunk
  std::uint64_t file_bytes_ = 0;
  std::size_t most_kept_ = 0;
  std::size_t kept_bytes_ = 0;
  std::map<std::vector<hsize_t>, Bytes> kept_;  // by the place of the chunk's first element
  std::deque<std::vector<hsize_t>> oldest_;     // of kept_, the oldest first
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_PROTO_HDF5_CHUNKS_H_
