// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/detector_crop.h"

#include <algorithm>
#include <cmath>

namespace poseidon::caffe {
namespace {

struct DetectorSide {
  std::int64_t first = 0, extent = 0;   // of the image
  std::int64_t before = 0, scaled = 0;  // of the input
};

// NumPy rounds halves to even numbers, as the processor does.
std::int64_t RoundedEven(double number) { return static_cast<std::int64_t>(std::nearbyint(number)); }

// `from` and `to` are the extents of the image and of the input.
DetectorSide WithContext(std::int64_t low, std::int64_t high, std::int64_t from, std::int64_t to,
                         std::int64_t context_pad) {
  const auto size = static_cast<double>(to);
  const double scale = size / (size - 2.0 * static_cast<double>(context_pad));
  const double half = static_cast<double>(high - low + 1) / 2.0, centre = static_cast<double>(low) + half;
  const std::int64_t begin = RoundedEven(centre - scale * half), end = RoundedEven(centre + scale * half);
  const double unit = size / static_cast<double>(end - begin + 1);  // pixels of the input by pixels of the image
  const std::int64_t first = std::clamp<std::int64_t>(begin, 0, from), last = std::clamp<std::int64_t>(end, 0, from);
  DetectorSide side{.first = first,
                    .extent = last - first,
                    .before = RoundedEven(static_cast<double>(std::max<std::int64_t>(0, -begin)) * unit)};
  // It counts a pixel more than there are, as Caffe's does.
  side.scaled = std::min(RoundedEven(static_cast<double>(last - first + 1) * unit), to - side.before);
  return side;
}

DetectorSide SideOf(std::int64_t low, std::int64_t high, std::int64_t from, std::int64_t to, std::int64_t context_pad) {
  if (low < 0 || low >= std::min(high, from)) return {};
  if (context_pad > 0) return WithContext(low, high, from, to, context_pad);
  return {.first = low, .extent = std::min(high, from) - low, .scaled = to};
}

}  // namespace

std::optional<WarpPlace> PlaceOfDetection(const DetectorWindow& window, const ImageShape& image,
                                          const ImageShape& input, std::int64_t context_pad) {
  const DetectorSide down = SideOf(window.ymin, window.ymax, image.height, input.height, context_pad);
  const DetectorSide across = SideOf(window.xmin, window.xmax, image.width, input.width, context_pad);
  if (std::min({down.extent, down.scaled, across.extent, across.scaled}) < 1) return std::nullopt;
  return WarpPlace{.x = across.first,
                   .y = down.first,
                   .width = across.extent,
                   .height = down.extent,
                   .left = across.before,
                   .top = down.before,
                   .scaled_width = across.scaled,
                   .scaled_height = down.scaled};
}

}  // namespace poseidon::caffe
