// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_DATABASE_SAMPLES_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_DATABASE_SAMPLES_H_

#include <memory>
#include <string>

#include "frontends/caffe/data/record_source.h"
#include "frontends/caffe/data/sample_source.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// The records of a database, over and over in key order: sample g is record g mod size.
Result<std::unique_ptr<SampleSource>> OpenDatabaseSamples(Database database, const std::string& path, Channels channels);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_DATABASE_SAMPLES_H_
