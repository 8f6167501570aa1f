// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/encoded_image.h"

#include "frontends/caffe/data/image_formats.h"

namespace poseidon::caffe {
namespace {

Status DecodeByFormat(std::string_view encoded, Channels channels, Image* image, int* orientation) {
  if (IsJpeg(encoded)) return DecodeJpeg(encoded, channels, image, orientation);
  if (IsPng(encoded)) return DecodePng(encoded, channels, image, orientation);
  return DataLoss("its " + std::to_string(encoded.size()) + " bytes are no JPEG and no PNG");
}

}  // namespace

Status DecodeImage(std::string_view encoded, Channels channels, const std::string& where, Image* image) {
  int orientation = 1;
  const Status decoded = DecodeByFormat(encoded, channels, image, &orientation);
  if (!decoded.ok()) return {decoded.code(), where + " cannot be decoded: " + decoded.message()};
  if (channels != Channels::kAsStored) Orient(orientation, image);
  return OkStatus();
}

}  // namespace poseidon::caffe
