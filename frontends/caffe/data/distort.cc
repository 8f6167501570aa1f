// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/distort.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "frontends/caffe/data/pixels.h"

namespace poseidon::caffe {
namespace {

// Hue, saturation and value of 8 bits, the hue in half degrees.
struct Colour {
  std::uint8_t hue, saturation, value;
};

// Fixed point with 12 bits (RGB2HSV_b, imgproc/src/color_hsv.simd.hpp): dividing by a number is multiplying by an entry of a table.
constexpr int kDivisionBits = 12;
int Divided(int number, double numerator, int divisor) {
  if (divisor == 0) return 0;
  const auto factor = static_cast<int>(std::lrint(numerator * (1 << kDivisionBits) / divisor));
  return (number * factor + (1 << (kDivisionBits - 1))) >> kDivisionBits;
}

Colour ColourOf(int blue, int green, int red) {
  const int value = std::max({blue, green, red});
  const int range = value - std::min({blue, green, red});
  int sixth = red - green + 4 * range;
  if (value == green) sixth = blue - red + 2 * range;
  if (value == red) sixth = green - blue;
  const int hue = Divided(sixth, 180.0 / 6, range);
  return {static_cast<std::uint8_t>(hue < 0 ? hue + 180 : hue), static_cast<std::uint8_t>(Divided(range, 255, value)), static_cast<std::uint8_t>(value)};
}

// In float, and cut to whole numbers (HSV2RGB_simd): blue, green, red.
std::array<std::uint8_t, 3> PixelOf(const Colour& colour) {
  const float value = static_cast<float>(colour.value) * (1 / 255.0F);
  const float saturation = static_cast<float>(colour.saturation) * (1 / 255.0F);
  const float turn = static_cast<float>(colour.hue) * (6 / 180.0F);
  const auto sector = static_cast<int>(turn);
  const float part = saturation * (turn - static_cast<float>(sector));
  const float low = value * (1 - saturation), falling = value * (1 - part), rising = value * (1 - saturation + part);
  std::array<float, 3> pixel{};
  switch (sector % 6) {
    case 0: pixel = {low, rising, value}; break;
    case 1: pixel = {low, value, falling}; break;
    case 2: pixel = {rising, value, low}; break;
    case 3: pixel = {value, falling, low}; break;
    case 4: pixel = {value, low, rising}; break;
    default: pixel = {falling, low, value}; break;
  }
  const auto cut = [](float number) { return static_cast<std::uint8_t>(std::clamp(number * 255, 0.0F, 255.0F)); };
  return {cut(pixel[0]), cut(pixel[1]), cut(pixel[2])};
}

void Reorder(RandomSequence* random, Image* image) {
  const auto plane = static_cast<std::size_t>(image->shape.height * image->shape.width);
  for (std::size_t i = 2; i > 0; --i) {
    const auto other = static_cast<std::size_t>(random->NextBelow(i + 1));
    if (other == i) continue;
    const auto at = [&](std::size_t c) { return image->planes.begin() + static_cast<std::ptrdiff_t>(c * plane); };
    std::swap_ranges(at(i), at(i + 1), at(other));
  }
}

Status CheckBetween(const std::string& name, float number, float low, float high) {
  if (number >= low && number <= high) return OkStatus();
  return InvalidArgument("distort_param has " + name + " " + std::to_string(number) + ", expected a number from " + std::to_string(low) + " to " +
                         std::to_string(high));
}

}  // namespace

void ScaleAndShift(float scale, float shift, Image* image) {
  for (std::uint8_t& pixel : image->planes) pixel = Saturated(static_cast<float>(pixel) * scale + shift);
}

void ScaleAndShiftColours(float saturation, float hue, Image* image) {
  const auto plane = static_cast<std::size_t>(image->shape.height * image->shape.width);
  std::uint8_t* const blue = image->planes.data();
  std::uint8_t* const green = blue + plane;
  std::uint8_t* const red = green + plane;
  for (std::size_t i = 0; i < plane; ++i) {
    Colour colour = ColourOf(blue[i], green[i], red[i]);
    colour.saturation = Saturated(static_cast<float>(colour.saturation) * saturation);
    colour.hue = Saturated(static_cast<float>(colour.hue) + hue);
    const std::array<std::uint8_t, 3> pixel = PixelOf(colour);
    blue[i] = pixel[0];
    green[i] = pixel[1];
    red[i] = pixel[2];
  }
}

Status CheckDistortion(const DistortionParameter& d) {
  for (const auto& [name, number] : {std::pair{"brightness_prob", d.brightness_prob()}, std::pair{"contrast_prob", d.contrast_prob()},
                                     std::pair{"hue_prob", d.hue_prob()}, std::pair{"saturation_prob", d.saturation_prob()},
                                     std::pair{"random_order_prob", d.random_order_prob()}}) {
    POSEIDON_RETURN_IF_ERROR(CheckBetween(name, number, 0, 1));
  }
  POSEIDON_RETURN_IF_ERROR(CheckBetween("brightness_delta", d.brightness_delta(), 0, 255));
  POSEIDON_RETURN_IF_ERROR(CheckBetween("hue_delta", d.hue_delta(), 0, 180));
  constexpr float kMost = 1e4F;
  POSEIDON_RETURN_IF_ERROR(CheckBetween("contrast_lower", d.contrast_lower(), 0, kMost));
  POSEIDON_RETURN_IF_ERROR(CheckBetween("contrast_upper", d.contrast_upper(), d.contrast_lower(), kMost));
  POSEIDON_RETURN_IF_ERROR(CheckBetween("saturation_lower", d.saturation_lower(), 0, kMost));
  return CheckBetween("saturation_upper", d.saturation_upper(), d.saturation_lower(), kMost);
}

void Distort(const DistortionParameter& d, RandomSequence* random, Image* image) {
  const auto happens = [random](float probability) { return random->Uniform(0, 1) < probability; };
  const auto contrast = [&] {
    if (happens(d.contrast_prob())) ScaleAndShift(random->Uniform(d.contrast_lower(), d.contrast_upper()), 0, image);
  };
  const bool contrast_first = random->Uniform(0, 1) > 0.5F;
  if (happens(d.brightness_prob())) ScaleAndShift(1, random->Uniform(-d.brightness_delta(), d.brightness_delta()), image);
  if (contrast_first) contrast();
  if (happens(d.saturation_prob())) ScaleAndShiftColours(random->Uniform(d.saturation_lower(), d.saturation_upper()), 0, image);
  if (happens(d.hue_prob())) ScaleAndShiftColours(1, random->Uniform(-d.hue_delta(), d.hue_delta()), image);
  if (!contrast_first) contrast();
  if (happens(d.random_order_prob())) Reorder(random, image);
}

}  // namespace poseidon::caffe
