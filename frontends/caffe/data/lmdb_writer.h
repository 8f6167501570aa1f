// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_LMDB_WRITER_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_LMDB_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Writes a new LMDB as BVLC Caffe reads it. It appears under its name complete or not at all: until
// Finish it is in a folder "PATH.tmp.<process>", which the destructor removes.
// Thread: one, the one that made it.
class LmdbWriter {
 public:
  // `value_bytes` is about what all keys and values will take; the database may grow beyond it
  // several times. `path` must not exist; its parent folder must.
  static Result<std::unique_ptr<LmdbWriter>> Create(const std::string& path,
                                                    std::uint64_t value_bytes);
  virtual ~LmdbWriter() = default;
  // Keys must come in ascending order, each once.
  virtual Status Put(std::string_view key, std::string_view value) = 0;
  // Puts the database, flushed to the device, in its place. Nothing may follow.
  virtual Status Finish() = 0;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_LMDB_WRITER_H_
