// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_FLOAT_IMAGE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_FLOAT_IMAGE_H_

#include <cstdint>
#include <vector>

#include "frontends/caffe/data/image.h"

namespace poseidon::caffe {

// Planes [channels, height, width] of numbers.
struct FloatImage {
  ImageShape shape;
  std::vector<float> values;
};

// Scaled to height x width: linear between the centres of pixels, the border's pixel outside.
FloatImage Scaled(const FloatImage& image, std::int64_t height, std::int64_t width);

// What is subtracted from an image: one of its size, or with height and width of 1 a value for each channel. Without
// values nothing is.
using MeanPixels = FloatImage;

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_FLOAT_IMAGE_H_
