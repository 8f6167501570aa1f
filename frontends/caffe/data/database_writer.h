// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_DATABASE_WRITER_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_DATABASE_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "frontends/caffe/data/record_source.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Writes a new database as BVLC Caffe reads it. It appears under its name complete or not at all: until
// Finish it is in a folder "PATH.tmp." with six letters more, which the destructor removes.
// Thread: one, the one that made it.
class DatabaseWriter {
 public:
  // `value_bytes` is about what all keys and values will take; the database may grow beyond it. `path` must not exist; its
  // parent folder must. kUnimplemented for a LevelDB in a build without it.
  static Result<std::unique_ptr<DatabaseWriter>> Create(Database backend, const std::string& path, std::uint64_t value_bytes);
  virtual ~DatabaseWriter() = default;
  // Keys must come in ascending order, each once.
  virtual Status Put(std::string_view key, std::string_view value) = 0;
  // Puts the database, flushed to the device, in its place. Nothing may follow.
  virtual Status Finish() = 0;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_DATABASE_WRITER_H_
