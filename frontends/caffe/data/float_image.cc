// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/float_image.h"

#include <algorithm>

namespace poseidon::caffe {
namespace {

// Where an output pixel lies between two of the input; centres of pixels match, and what is outside is the border.
struct Between {
  std::int64_t first, second;
  float weight;  // of the second
};
Between PlaceOf(std::int64_t i, std::int64_t from, std::int64_t to) {
  const double place =
      std::clamp((static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5, 0.0,
                 static_cast<double>(from - 1));
  const auto first = static_cast<std::int64_t>(place);
  return {first, std::min(first + 1, from - 1), static_cast<float>(place - static_cast<double>(first))};
}

}  // namespace

FloatImage Scaled(const FloatImage& image, std::int64_t height, std::int64_t width) {
  FloatImage scaled{.shape = {image.shape.channels, height, width}, .values = {}};
  scaled.values.reserve(static_cast<std::size_t>(scaled.shape.count()));
  for (std::int64_t c = 0; c < image.shape.channels; ++c) {
    const float* const plane = image.values.data() + c * image.shape.height * image.shape.width;
    for (std::int64_t y = 0; y < height; ++y) {
      const Between row = PlaceOf(y, image.shape.height, height);
      const float* const upper = plane + row.first * image.shape.width;
      const float* const lower = plane + row.second * image.shape.width;
      for (std::int64_t x = 0; x < width; ++x) {
        const Between column = PlaceOf(x, image.shape.width, width);
        const auto mix = [&](const float* line) {
          return line[column.first] + column.weight * (line[column.second] - line[column.first]);
        };
        scaled.values.push_back(mix(upper) + row.weight * (mix(lower) - mix(upper)));
      }
    }
  }
  return scaled;
}

}  // namespace poseidon::caffe
