// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_LEVELDB_SOURCE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_LEVELDB_SOURCE_H_

#include <memory>
#include <string>

#include "frontends/caffe/data/record_source.h"

namespace poseidon::caffe {

// Opens the LevelDB in folder `path`; reads it once to count its records. An error where this build
// has no LevelDB.
Result<std::unique_ptr<RecordSource>> OpenLevelDb(const std::string& path);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_LEVELDB_SOURCE_H_
