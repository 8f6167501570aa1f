// SPDX-License-Identifier: Apache-2.0
#include "tools/train/database_flags.h"

#include "tools/console/fail.h"
#include "tools/console/values.h"

namespace poseidon::tools {
namespace {

const char* NameOf(caffe::Database backend) { return backend == caffe::Database::kLmdb ? "lmdb" : "leveldb"; }

}  // namespace

void AddBackendFlag(CLI::App& command, std::string& backend) {
  backend = "lmdb";
  command.add_option("--backend", backend, "Kind of the database")->check(OneOf({"lmdb", "leveldb"}));
}

void AddReadBackendFlag(CLI::App& command, std::string& backend) {
  command.add_option("--backend", backend, "Kind of the database; without it its files say")->check(OneOf({"lmdb", "leveldb"}));
}

caffe::Database BackendOf(const std::string& backend) { return OrFail(caffe::DatabaseNamed(backend)); }

std::unique_ptr<caffe::RecordSource> OpenDatabase(const std::string& path, const std::string& backend) {
  const caffe::Database found = OrFail(caffe::DatabaseIn(path));
  if (!backend.empty() && BackendOf(backend) != found) {
    Fail("database " + path + " is of the kind " + NameOf(found) + ", not " + backend + " as the command line says; leave --backend out");
  }
  return OrFail(caffe::OpenRecords(found, path));
}

}  // namespace poseidon::tools
