// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_RECORD_SOURCE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_RECORD_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "poseidon/base/result.h"

namespace poseidon::caffe {

// One entry of a database. The views hold until the next call on the source it came from.
struct Record {
  std::string_view key;
  std::string_view value;
};

// A database of records in key order, read only. Going forward is cheap, going back restarts at the
// first key. Errors name the database and the record.
// Thread: one at a time, any.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  // Number of records, at least 1.
  virtual std::uint64_t size() const = 0;
  virtual const std::string& path() const = 0;
  // The record with number `position` (< size()) in key order.
  virtual Result<Record> At(std::uint64_t position) = 0;
};

enum class Database { kLmdb, kLevelDb };

// "lmdb" and "leveldb", as Caffe's tools name them; another name is an error.
Result<Database> DatabaseNamed(const std::string& name);
// What the files in folder `path` are. An error where they are neither.
Result<Database> DatabaseIn(const std::string& path);

// Opens the database in folder `path`. An absent, empty, truncated or foreign one is an error.
//
// LMDB is opened without its lock file, so that any number of processes may read it, also from a
// read-only or network folder; a writer that changes it meanwhile is noticed and is an error.
// LevelDB locks its folder: one process per copy.
Result<std::unique_ptr<RecordSource>> OpenRecords(Database database, const std::string& path);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_RECORD_SOURCE_H_
