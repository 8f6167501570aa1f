// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_LEVELDB_WRITER_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_LEVELDB_WRITER_H_

#include <memory>
#include <string>

#include "frontends/caffe/data/database_writer.h"

namespace poseidon::caffe {

// Begins a new LevelDB as DatabaseWriter::Create. An error where this build has no LevelDB.
Result<std::unique_ptr<DatabaseWriter>> CreateLevelDb(const std::string& path);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_LEVELDB_WRITER_H_
