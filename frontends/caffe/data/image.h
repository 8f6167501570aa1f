// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "poseidon/base/status.h"

namespace poseidon::caffe {

// Channels, height and width of an image.
struct ImageShape {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t count() const { return channels * height * width; }
  friend bool operator==(const ImageShape&, const ImageShape&) = default;
};
std::string ToString(const ImageShape& shape);

// How an image file becomes planes: as it is stored, or always with three or one channels.
enum class Channels { kAsStored, kColour, kGrey };

// Planes [channels, height, width] of bytes; of three or four channels the order is blue, green, red, alpha.
struct Image {
  ImageShape shape;
  std::vector<std::uint8_t> planes;
};

// Gives `image` its shape and memory for it, whose values are arbitrary. An image without pixels, or with more than 2^27
// (400 MB of colours), is refused before memory is asked for: its file may be a few bytes long.
Status Allocate(const ImageShape& shape, Image* image);

// The one of EXIF's orientations that has left and right changed.
inline constexpr int kMirrored = 2;
// Turns the image as one of EXIF's orientations says, 1 to 8: 1 is upright, above 4 height and width change places.
// Others turn nothing.
void Orient(int orientation, Image* image);

// Makes one channel or three of an image of one, three or four, as cv::cvtColor does with bytes: grey of colours is 0.299 red, 0.587 green
// and 0.114 blue in 15 bits, grey becomes three equal planes, alpha is dropped.
void ConvertChannels(std::int64_t channels, Image* image);

// The part of an image of so many rows and columns from (y, x) on, which is within it.
Image CutOut(const Image& image, std::int64_t y, std::int64_t x, std::int64_t height, std::int64_t width);

// Scales every plane to height x width, as cv::resize does with INTER_LINEAR on 8 bits: sample centres match, weights
// have 11 bits, and halving both sides is the mean of four pixels. `to` is another image than `from`.
Status Resize(const Image& from, std::int64_t height, std::int64_t width, Image* to);

// How pixels between pixels come about, by OpenCV's names and formulas.
enum class Interpolation { kLinear, kArea, kNearest, kCubic, kLanczos4 };

// The same, with each of them.
Status ResizeBy(Interpolation interpolation, const Image& from, std::int64_t height, std::int64_t width, Image* to);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_H_
