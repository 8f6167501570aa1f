// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/database_writer.h"

#include "frontends/caffe/data/leveldb_writer.h"
#include "frontends/caffe/data/lmdb_writer.h"

namespace poseidon::caffe {

Result<std::unique_ptr<DatabaseWriter>> DatabaseWriter::Create(Database backend, const std::string& path, std::uint64_t value_bytes) {
  return backend == Database::kLevelDb ? CreateLevelDb(path) : CreateLmdb(path, value_bytes);
}

}  // namespace poseidon::caffe
