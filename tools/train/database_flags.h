// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_DATABASE_FLAGS_H_
#define POSEIDON_TOOLS_TRAIN_DATABASE_FLAGS_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "frontends/caffe/data/record_source.h"

// Databases on the command lines of Caffe's tools.
namespace poseidon::tools {

// Adds --backend for a database that is written: lmdb, which is the default, or leveldb.
void AddBackendFlag(CLI::App& command, std::string& backend);
// Adds --backend for a database that is read. Left out, its files say what it is.
void AddReadBackendFlag(CLI::App& command, std::string& backend);

// The value of such a flag. Fails with a sentence.
caffe::Database BackendOf(const std::string& backend);

// Opens the database in folder `path`, of which `backend` may be empty. Fails with a sentence.
std::unique_ptr<caffe::RecordSource> OpenDatabase(const std::string& path, const std::string& backend);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_DATABASE_FLAGS_H_
