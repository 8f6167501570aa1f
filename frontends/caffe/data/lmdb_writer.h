// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_LMDB_WRITER_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_LMDB_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "frontends/caffe/data/database_writer.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Begins a new LMDB as DatabaseWriter::Create.
Result<std::unique_ptr<DatabaseWriter>> CreateLmdb(const std::string& path, std::uint64_t value_bytes);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_LMDB_WRITER_H_
