// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_ENCODED_IMAGE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_ENCODED_IMAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "frontends/caffe/data/sample.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// Decodes a JPEG, PNG or other image file held in `encoded` into planes of bytes, colours in the
// order blue, green, red as Caffe's. Where this build has no OpenCV it says so. `where` names the
// record in an error.
Status DecodeImage(const std::string& encoded, Channels channels, const std::string& where,
                   ImageShape* shape, std::vector<std::uint8_t>* planes);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_ENCODED_IMAGE_H_
