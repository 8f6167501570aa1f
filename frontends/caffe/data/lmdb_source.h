// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_LMDB_SOURCE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_LMDB_SOURCE_H_

#include <memory>
#include <string>

#include "frontends/caffe/data/record_source.h"

namespace poseidon::caffe {

// Opens the LMDB in folder `path`, which has a data.mdb.
Result<std::unique_ptr<RecordSource>> OpenLmdb(const std::string& path);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_LMDB_SOURCE_H_
