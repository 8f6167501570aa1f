// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/image.h"

#include <algorithm>
#include <utility>

namespace poseidon::caffe {
namespace {

constexpr std::int64_t kMostPixels = std::int64_t{1} << 27;

}  // namespace

std::string ToString(const ImageShape& shape) {
  return std::to_string(shape.channels) + "x" + std::to_string(shape.height) + "x" + std::to_string(shape.width);
}

Status Allocate(const ImageShape& shape, Image* image) {
  if (shape.height <= 0 || shape.width <= 0) {
    return DataLoss("it is " + ToString(shape) + ", expected positive dimensions");
  }
  if (shape.height > kMostPixels || shape.width > kMostPixels / shape.height) {
    return ResourceExhausted("it is " + ToString(shape) + ", expected at most " + std::to_string(kMostPixels) + " pixels");
  }
  image->shape = shape;
  image->planes.resize(static_cast<std::size_t>(shape.count()));
  return OkStatus();
}

// Decoders of OpenCV make grey of colours in 14 bits (pixels.h), cv::cvtColor in 15.
void ConvertChannels(std::int64_t channels, Image* image) {
  constexpr int kRed = 9798, kGreen = 19235, kBlue = 3735;
  const std::int64_t plane = image->shape.height * image->shape.width;
  if (channels == 1 && image->shape.channels >= 3) {
    std::uint8_t* const blue = image->planes.data();
    const std::uint8_t* const green = blue + plane;
    const std::uint8_t* const red = green + plane;
    for (std::int64_t i = 0; i < plane; ++i) {
      blue[i] = static_cast<std::uint8_t>((kBlue * blue[i] + kGreen * green[i] + kRed * red[i] + (1 << 14)) >> 15);
    }
  }
  const bool spreads = channels == 3 && image->shape.channels == 1;
  image->shape.channels = channels;
  image->planes.resize(static_cast<std::size_t>(image->shape.count()));
  if (!spreads) return;
  for (std::int64_t c = 1; c < 3; ++c) std::copy_n(image->planes.begin(), plane, image->planes.begin() + c * plane);
}

Image CutOut(const Image& image, std::int64_t y, std::int64_t x, std::int64_t height, std::int64_t width) {
  Image part{.shape = {image.shape.channels, height, width}, .planes = {}};
  part.planes.reserve(static_cast<std::size_t>(part.shape.count()));
  for (std::int64_t c = 0; c < image.shape.channels; ++c) {
    for (std::int64_t row = y; row < y + height; ++row) {
      const auto first = image.planes.begin() + (c * image.shape.height + row) * image.shape.width + x;
      part.planes.insert(part.planes.end(), first, first + width);
    }
  }
  return part;
}

void Orient(int orientation, Image* image) {
  if (orientation < 2 || orientation > 8) return;
  const bool transposed = orientation > 4;
  const ImageShape from = image->shape;
  const ImageShape to = transposed ? ImageShape{from.channels, from.width, from.height} : from;
  // Which sides of the stored image are counted from their end, in the order of the stored axes.
  const bool up = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool back = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  std::vector<std::uint8_t> turned(image->planes.size());
  std::uint8_t* out = turned.data();
  for (std::int64_t c = 0; c < to.channels; ++c) {
    const std::uint8_t* plane = image->planes.data() + c * from.height * from.width;
    for (std::int64_t i = 0; i < to.height; ++i) {
      for (std::int64_t j = 0; j < to.width; ++j) {
        const std::int64_t y = transposed ? j : i;
        const std::int64_t x = transposed ? i : j;
        *out++ = plane[(up ? from.height - 1 - y : y) * from.width + (back ? from.width - 1 - x : x)];
      }
    }
  }
  image->shape = to;
  image->planes = std::move(turned);
}

}  // namespace poseidon::caffe
