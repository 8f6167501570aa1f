// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_ENCODED_IMAGE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_ENCODED_IMAGE_H_

#include <string>
#include <string_view>

#include "frontends/caffe/data/image.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// Decodes the bytes of an image file (JPEG or PNG) into *image, whose memory is used again. Pixels are those of
// cv::imdecode: with IMREAD_COLOR for kColour and IMREAD_GRAYSCALE for kGrey, which turn the image upright as its EXIF
// orientation says, and with IMREAD_UNCHANGED for kAsStored, which keeps alpha; then 16 bits a channel are an error, because
// Caffe has none. Bytes that end early or are no image are an error, in which `where` names them. Thread: any.
Status DecodeImage(std::string_view encoded, Channels channels, const std::string& where, Image* image);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_ENCODED_IMAGE_H_
