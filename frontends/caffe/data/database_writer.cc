// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/database_writer.h"

#include "frontends/caffe/data/leveldb_writer.h"
#include "frontends/caffe/data/lmdb_writer.h"

namespace poseidon::caffe {

Result<std::unique_ptr<DatabaseWriter>> DatabaseWriter::Create(Database backend, const std::string& path, std::uint64_t value_bytes) {
  if (backend == Database::kLevelDb) return CreateLevelDb(path);
  POSEIDON_ASSIGN_OR_RETURN(auto writer, LmdbWriter::Create(path, value_bytes));
  return std::unique_ptr<DatabaseWriter>(std::move(writer));
}

}  // namespace poseidon::caffe
