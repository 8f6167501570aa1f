// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_MEAN_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_MEAN_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "frontends/caffe/data/record_source.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

struct ImageMean {
  // [1, channels, height, width], in the four dimensions of old, as Caffe's compute_image_mean writes it.
  BlobProto image;
  // Of each channel of that image.
  std::vector<double> channels;
  std::uint64_t records = 0;
};

// The mean of all records, whose images must have one shape; compressed ones are decoded. Sums are kept in f64, which for bytes
// is exact up to 2^45 records; Caffe's, in f32, are rounded from 65,793 records on. `progress` is called behind every
// 10,000th record; may be empty. Errors name the database and the record.
Result<ImageMean> ComputeImageMean(RecordSource* records, const std::function<void(std::uint64_t records)>& progress);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_MEAN_H_
