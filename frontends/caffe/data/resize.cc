// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "frontends/caffe/data/image.h"

namespace poseidon::caffe {
namespace {

constexpr int kWeightBits = 11;  // INTER_RESIZE_COEF_BITS

// Where one output pixel lies between two input pixels: first * (2^11 - weight) + second * weight.
struct Tap {
  std::int64_t first, second;
  int first_weight, second_weight;
};

// OpenCV's table (imgproc/src/resize.cpp, INTER_LINEAR), in float as there: output pixel i is at (i + 0.5) from / to - 0.5 of
// the input, and what is outside is the border's pixel. Across, that has the whole weight; down, its two shares stay
// apart, which rounds differently.
std::vector<Tap> Taps(std::int64_t from, std::int64_t to, bool across) {
  std::vector<Tap> taps(static_cast<std::size_t>(to));
  const double scale = 1.0 / (static_cast<double>(to) / static_cast<double>(from));
  for (std::int64_t i = 0; i < to; ++i) {
    auto place = static_cast<float>((static_cast<double>(i) + 0.5) * scale - 0.5);
    const auto pixel = static_cast<std::int64_t>(std::floor(place));
    place -= static_cast<float>(pixel);
    if (across && (pixel < 0 || pixel >= from - 1)) place = 0;
    taps[static_cast<std::size_t>(i)] = {std::clamp<std::int64_t>(pixel, 0, from - 1),
                                         std::clamp<std::int64_t>(pixel + 1, 0, from - 1),
                                         static_cast<int>(std::lrint((1 - place) * (1 << kWeightBits))),
                                         static_cast<int>(std::lrint(place * (1 << kWeightBits)))};
  }
  return taps;
}

// One row, to 8 + 11 bits a pixel.
void ScaleRow(const std::uint8_t* row, const std::vector<Tap>& taps, int* out) {
  for (const Tap& tap : taps) *out++ = row[tap.first] * tap.first_weight + row[tap.second] * tap.second_weight;
}

// Two such rows to pixels; OpenCV drops bits on the way so that 16 suffice (VResizeLinear for uchar).
void MixRows(const int* first, const int* second, const Tap& tap, std::int64_t width, std::uint8_t* out) {
  for (std::int64_t x = 0; x < width; ++x) {
    const int upper = (tap.first_weight * (first[x] >> 4)) >> 16;
    const int lower = (tap.second_weight * (second[x] >> 4)) >> 16;
    out[x] = static_cast<std::uint8_t>((upper + lower + 2) >> 2);
  }
}

void ScalePlane(const std::uint8_t* plane, std::int64_t width, const std::vector<Tap>& columns, const std::vector<Tap>& rows,
                std::uint8_t* out) {
  const auto out_width = static_cast<std::int64_t>(columns.size());
  std::vector<int> upper(columns.size()), lower(columns.size());
  std::int64_t in_upper = -1, in_lower = -1;  // the input rows that they hold
  for (const Tap& tap : rows) {
    if (in_lower == tap.first) {
      upper.swap(lower);
      std::swap(in_upper, in_lower);
    }
    if (in_upper != tap.first) ScaleRow(plane + (in_upper = tap.first) * width, columns, upper.data());
    if (in_lower != tap.second) ScaleRow(plane + (in_lower = tap.second) * width, columns, lower.data());
    MixRows(upper.data(), lower.data(), tap, out_width, out);
    out += out_width;
  }
}

// Half of both sides exactly: OpenCV takes the mean of four.
void HalvePlane(const std::uint8_t* plane, std::int64_t height, std::int64_t width, std::uint8_t* out) {
  for (std::int64_t y = 0; y + 1 < height; y += 2) {
    const std::uint8_t* const upper = plane + y * width;
    const std::uint8_t* const lower = upper + width;
    for (std::int64_t x = 0; x + 1 < width; x += 2) {
      *out++ = static_cast<std::uint8_t>((upper[x] + upper[x + 1] + lower[x] + lower[x + 1] + 2) >> 2);
    }
  }
}

}  // namespace

Status Resize(const Image& from, std::int64_t height, std::int64_t width, Image* to) {
  const ImageShape& shape = from.shape;
  POSEIDON_RETURN_IF_ERROR(Allocate({shape.channels, height, width}, to));
  if (shape.height == height && shape.width == width) {
    to->planes = from.planes;
    return OkStatus();
  }
  const bool half = shape.height == 2 * height && shape.width == 2 * width;
  const std::vector<Tap> columns = Taps(shape.width, width, true);
  const std::vector<Tap> rows = Taps(shape.height, height, false);
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    const std::uint8_t* const plane = from.planes.data() + c * shape.height * shape.width;
    std::uint8_t* const out = to->planes.data() + c * height * width;
    if (half) {
      HalvePlane(plane, shape.height, shape.width, out);
    } else {
      ScalePlane(plane, shape.width, columns, rows, out);
    }
  }
  return OkStatus();
}

}  // namespace poseidon::caffe
