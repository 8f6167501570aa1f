// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/record_source.h"

#include <filesystem>
#include <system_error>

#include "frontends/caffe/data/leveldb_source.h"
#include "frontends/caffe/data/lmdb_source.h"

namespace poseidon::caffe {
namespace {

namespace fs = std::filesystem;

// Caffe's default back end is LevelDB, and a net that forgot to say LMDB is the usual mistake: the
// files show which one it is.
Status CheckFolder(Database database, const std::string& path) {
  std::error_code error;
  if (path.empty()) return InvalidArgument("a database needs a path, data_param.source is empty");
  if (!fs::exists(path, error)) return NotFound("database " + path + " does not exist");
  if (!fs::is_directory(path, error)) {
    return InvalidArgument("database " + path +
                           " is a file, expected the folder of an LMDB or LevelDB");
  }
  const bool lmdb = fs::exists(fs::path(path) / "data.mdb", error);
  const bool leveldb = fs::exists(fs::path(path) / "CURRENT", error);
  if (database == Database::kLmdb && !lmdb) {
    return NotFound("database " + path +
                    (leveldb ? " is a LevelDB, the net says backend: LMDB"
                             : " holds no data.mdb, expected an LMDB"));
  }
  if (database == Database::kLevelDb && !leveldb) {
    return NotFound("database " + path +
                    (lmdb ? " is an LMDB, the net says (or leaves at the default) backend: LEVELDB"
                          : " holds no file CURRENT, expected a LevelDB"));
  }
  return OkStatus();
}

}  // namespace

Result<Database> DatabaseNamed(const std::string& name) {
  if (name == "lmdb") return Database::kLmdb;
  if (name == "leveldb") return Database::kLevelDb;
  return InvalidArgument("unknown back end '" + name + "' of a database, expected lmdb or leveldb");
}

Result<Database> DatabaseIn(const std::string& path) {
  std::error_code error;
  if (fs::exists(fs::path(path) / "data.mdb", error)) return Database::kLmdb;
  if (fs::exists(fs::path(path) / "CURRENT", error)) return Database::kLevelDb;
  if (!fs::exists(path, error)) return NotFound("database " + path + " does not exist");
  return NotFound("database " + path + " holds neither data.mdb nor CURRENT, expected the folder of an LMDB or LevelDB");
}

Result<std::unique_ptr<RecordSource>> OpenRecords(Database database, const std::string& path) {
  POSEIDON_RETURN_IF_ERROR(CheckFolder(database, path));
  return database == Database::kLmdb ? OpenLmdb(path) : OpenLevelDb(path);
}

}  // namespace poseidon::caffe
