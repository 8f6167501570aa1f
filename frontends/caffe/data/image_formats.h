// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_FORMATS_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_FORMATS_H_

#include <string_view>

#include "frontends/caffe/data/image.h"
#include "poseidon/base/status.h"

// One decoder per format, told apart by the first bytes. An error says what is wrong with the bytes, the caller says which
// bytes. *orientation is EXIF's where the file has one, else it stays. Thread: any.
namespace poseidon::caffe {

bool IsJpeg(std::string_view file);
Status DecodeJpeg(std::string_view file, Channels channels, Image* image, int* orientation);

bool IsPng(std::string_view file);
Status DecodePng(std::string_view file, Channels channels, Image* image, int* orientation);

// The orientation in EXIF's data, a TIFF directory; 1 where there is none.
int ExifOrientation(std::string_view tiff);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_FORMATS_H_
