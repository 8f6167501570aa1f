// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_PIXELS_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_PIXELS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "frontends/caffe/data/image.h"

// What decoders and transforms do with pixels. Plain memory and plain loops: errors of the C libraries jump over these.
namespace poseidon::caffe {

struct Planes {
  std::uint8_t* first;
  std::int64_t channels, height, width;
  std::uint8_t* Row(std::int64_t channel, std::int64_t y) const { return first + (channel * height + y) * width; }
};

inline Planes PlanesOf(Image* image) {
  return {image->planes.data(), image->shape.channels, image->shape.height, image->shape.width};
}

// Grey as OpenCV makes it of colours: 0.299 red, 0.587 green, 0.114 blue in 14 bits (icvCvt_BGR2Gray, imgcodecs/src/utils.cpp).
inline std::uint8_t GreyOf(int blue, int green, int red) {
  constexpr int kRed = 4899, kGreen = 9617, kBlue = (1 << 14) - kRed - kGreen;
  return static_cast<std::uint8_t>((blue * kBlue + green * kGreen + red * kRed + (1 << 13)) >> 14);
}

// The nearest whole number, or the end of the range where that is nearer.
inline std::uint8_t Saturated(float number) { return static_cast<std::uint8_t>(std::lrint(std::clamp(number, 0.0F, 255.0F))); }

inline void WriteGreyRow(const std::uint8_t* grey, std::int64_t y, const Planes& planes) {
  std::copy(grey, grey + planes.width, planes.Row(0, y));
}

inline void WriteRgbRow(const std::uint8_t* rgb, std::int64_t y, const Planes& planes) {
  std::uint8_t* const blue = planes.Row(0, y);
  std::uint8_t* const green = planes.Row(1, y);
  std::uint8_t* const red = planes.Row(2, y);
  for (std::int64_t x = 0; x < planes.width; ++x) {
    red[x] = rgb[3 * x];
    green[x] = rgb[3 * x + 1];
    blue[x] = rgb[3 * x + 2];
  }
}

// Inverted ink as Adobe writes it: colour = k - (255 - ink) k / 256 (icvCvt_CMYK2BGR, imgcodecs/src/utils.cpp).
inline void WriteCmykRow(const std::uint8_t* cmyk, std::int64_t y, const Planes& planes) {
  for (std::int64_t x = 0; x < planes.width; ++x, cmyk += 4) {
    const int black = cmyk[3];
    const auto colour = [black](int ink) { return black - ((255 - ink) * black >> 8); };
    const int red = colour(cmyk[0]), green = colour(cmyk[1]), blue = colour(cmyk[2]);
    if (planes.channels == 1) {
      planes.Row(0, y)[x] = GreyOf(blue, green, red);
    } else {
      planes.Row(0, y)[x] = static_cast<std::uint8_t>(blue);
      planes.Row(1, y)[x] = static_cast<std::uint8_t>(green);
      planes.Row(2, y)[x] = static_cast<std::uint8_t>(red);
    }
  }
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_PIXELS_H_
