// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_PARTITION_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_PARTITION_H_

#include <string>

#include "frontends/caffe/data/record_source.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// Deals the records out to `parts` new databases "PATH_0" to "PATH_<parts - 1>" of the kind `backend`: record i goes to
// number i mod `parts`, under its key. None of them may exist. All of them are there at the end, or, after an error, none; reads
// the source once for each.
Status Partition(RecordSource* records, Database backend, int parts);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_PARTITION_H_
