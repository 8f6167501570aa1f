// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "frontends/caffe/data/image.h"
#include "frontends/caffe/data/pixels.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

constexpr int kWeightBits = 11;  // INTER_RESIZE_COEF_BITS

// Where one output pixel lies between two input pixels: first * (2^11 - weight) + second * weight.
struct Tap {
  std::int64_t first, second;
  int first_weight, second_weight;
};

int Weighed(double weight) { return static_cast<int>(std::lrint(weight * (1 << kWeightBits))); }

// How many pixels of the input one of the output is.
double StepOf(std::int64_t from, std::int64_t to) { return 1.0 / (static_cast<double>(to) / static_cast<double>(from)); }

// OpenCV's table (imgproc/src/resize.cpp, INTER_LINEAR), in float as there: output pixel i is at (i + 0.5) from / to - 0.5 of
// the input, and what is outside is the border's pixel. Across, that has the whole weight; down, its two shares stay
// apart, which rounds differently. INTER_AREA has a table of the same form where an image grows: most pixels are copies.
std::vector<Tap> Taps(std::int64_t from, std::int64_t to, bool across, bool area = false) {
  std::vector<Tap> taps(static_cast<std::size_t>(to));
  const double step = StepOf(from, to);
  for (std::int64_t i = 0; i < to; ++i) {
    auto place = static_cast<float>((static_cast<double>(i) + 0.5) * step - 0.5);
    auto pixel = static_cast<std::int64_t>(std::floor(place));
    place -= static_cast<float>(pixel);
    if (area) {
      pixel = static_cast<std::int64_t>(std::floor(static_cast<double>(i) * step));
      place = static_cast<float>(static_cast<double>(i + 1) - static_cast<double>(pixel + 1) / step);
      place = place <= 0 ? 0 : place - std::floor(place);
    }
    if (across && (pixel < 0 || pixel >= from - 1)) place = 0;
    taps[static_cast<std::size_t>(i)] = {std::clamp<std::int64_t>(pixel, 0, from - 1),
                                         std::clamp<std::int64_t>(pixel + 1, 0, from - 1),
                                         Weighed(1 - place), Weighed(place)};
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

// Numbers of a row or a column, each a sum of `count` of the input's, the first of which may be outside.
struct Taps8 {
  std::int64_t first;
  std::array<int, 8> weights;
};

// Weights of the pixels around a place between the pixels number count / 2 - 1 and count / 2.
std::array<double, 8> WeightsAround(Interpolation interpolation, double place) {
  std::array<double, 8> weights{};
  if (interpolation == Interpolation::kCubic) {
    constexpr double kSharpness = -0.75;
    const auto near = [](double d) { return ((kSharpness + 2) * d - (kSharpness + 3)) * d * d + 1; };
    weights[0] = ((kSharpness * (place + 1) - 5 * kSharpness) * (place + 1) + 8 * kSharpness) * (place + 1) - 4 * kSharpness;
    weights[1] = near(place);
    weights[2] = near(1 - place);
    weights[3] = 1 - weights[0] - weights[1] - weights[2];
    return weights;
  }
  const auto sinc = [](double d) { return std::fabs(d) < 1e-9 ? 1 : std::sin(M_PI * d) / (M_PI * d); };
  double sum = 0;
  for (int i = 0; i < 8; ++i) {
    const double distance = place + 3 - i;
    sum += At(weights, i) = sinc(distance) * sinc(distance / 4);
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

std::vector<Taps8> WideTaps(Interpolation interpolation, int count, std::int64_t from, std::int64_t to) {
  std::vector<Taps8> taps;
  for (std::int64_t i = 0; i < to; ++i) {
    const auto place = static_cast<float>((static_cast<double>(i) + 0.5) * StepOf(from, to) - 0.5);
    const auto pixel = static_cast<std::int64_t>(std::floor(place));
    Taps8 tap{.first = pixel - count / 2 + 1, .weights = {}};
    const std::array<double, 8> weights = WeightsAround(interpolation, double{place} - static_cast<double>(pixel));
    for (int k = 0; k < count; ++k) At(tap.weights, k) = Weighed(At(weights, k));
    taps.push_back(tap);
  }
  return taps;
}

void ScaleRowWide(const std::uint8_t* row, std::int64_t width, int count, const std::vector<Taps8>& taps, int* out) {
  for (const Taps8& tap : taps) {
    int sum = 0;
    for (int k = 0; k < count; ++k) sum += row[std::clamp<std::int64_t>(tap.first + k, 0, width - 1)] * At(tap.weights, k);
    *out++ = sum;
  }
}

void ScalePlaneWide(const std::uint8_t* plane, const ImageShape& from, int count, const std::vector<Taps8>& columns, const std::vector<Taps8>& rows,
                    std::uint8_t* out) {
  // An output row needs eight neighbours at most: row y is in place y mod 8.
  struct Scaled {
    std::int64_t y = -1;
    std::vector<int> numbers;
  };
  std::array<Scaled, 8> scaled;
  for (Scaled& row : scaled) row.numbers.resize(columns.size());
  std::vector<std::int64_t> sum(columns.size());
  for (const Taps8& tap : rows) {
    std::fill(sum.begin(), sum.end(), 0);
    for (int k = 0; k < count; ++k) {
      const std::int64_t y = std::clamp<std::int64_t>(tap.first + k, 0, from.height - 1);
      Scaled& row = At(scaled, y % 8);
      if (row.y != y) ScaleRowWide(plane + (row.y = y) * from.width, from.width, count, columns, row.numbers.data());
      for (std::size_t x = 0; x < sum.size(); ++x) sum[x] += std::int64_t{row.numbers[x]} * At(tap.weights, k);
    }
    constexpr int kBits = 2 * kWeightBits;
    for (const std::int64_t number : sum) {
      *out++ = static_cast<std::uint8_t>(std::clamp<std::int64_t>((number + (1 << (kBits - 1))) >> kBits, 0, 255));
    }
  }
}

// What one pixel of the input adds to one of the output.
struct Share {
  std::int64_t from, to;
  float part;
};

// Which parts of the input's pixels each of the output covers (computeResizeAreaTab).
std::vector<Share> Shares(std::int64_t from, std::int64_t to) {
  constexpr double kSliver = 1e-3;  // too little to count
  const double step = StepOf(from, to);
  std::vector<Share> shares;
  for (std::int64_t i = 0; i < to; ++i) {
    const double begin = static_cast<double>(i) * step, end = begin + step;
    const double cell = std::min(step, static_cast<double>(from) - begin);
    const auto last = std::min(static_cast<std::int64_t>(std::floor(end)), from - 1);
    const auto first = std::min(static_cast<std::int64_t>(std::ceil(begin)), last);
    const double before = static_cast<double>(first) - begin, after = end - static_cast<double>(last);
    if (before > kSliver) shares.push_back({first - 1, i, static_cast<float>(before / cell)});
    for (std::int64_t j = first; j < last; ++j) shares.push_back({j, i, static_cast<float>(1 / cell)});
    if (after > kSliver) shares.push_back({last, i, static_cast<float>(std::min({after, 1.0, cell}) / cell)});
  }
  return shares;
}

void ShrinkPlane(const std::uint8_t* plane, std::int64_t width, std::int64_t out_width, const std::vector<Share>& columns,
                 const std::vector<Share>& rows, std::uint8_t* out) {
  std::vector<float> row(static_cast<std::size_t>(out_width)), sum(row.size());
  std::int64_t writes = 0;
  const auto write = [&] {
    for (std::size_t x = 0; x < sum.size(); ++x) out[x] = Saturated(sum[x]);
    std::fill(sum.begin(), sum.end(), 0.0F);
    out += out_width;
    ++writes;
  };
  for (const Share& down : rows) {
    if (down.to != writes) write();
    std::fill(row.begin(), row.end(), 0.0F);
    for (const Share& across : columns) {
      row[static_cast<std::size_t>(across.to)] += static_cast<float>(plane[down.from * width + across.from]) * across.part;
    }
    for (std::size_t x = 0; x < sum.size(); ++x) sum[x] += down.part * row[x];
  }
  write();
}

void PickNearest(const std::uint8_t* plane, const ImageShape& from, std::int64_t height, std::int64_t width, std::uint8_t* out) {
  const auto nearest = [](std::int64_t i, std::int64_t size, std::int64_t to) {
    return std::min(static_cast<std::int64_t>(std::floor(static_cast<double>(i) * StepOf(size, to))), size - 1);
  };
  for (std::int64_t y = 0; y < height; ++y) {
    const std::uint8_t* const row = plane + nearest(y, from.height, height) * from.width;
    for (std::int64_t x = 0; x < width; ++x) *out++ = row[nearest(x, from.width, width)];
  }
}

}  // namespace

Status Resize(const Image& from, std::int64_t height, std::int64_t width, Image* to) {
  return ResizeBy(Interpolation::kLinear, from, height, width, to);
}

Status ResizeBy(Interpolation interpolation, const Image& from, std::int64_t height, std::int64_t width, Image* to) {
  const ImageShape& shape = from.shape;
  POSEIDON_RETURN_IF_ERROR(Allocate({shape.channels, height, width}, to));
  if (shape.height == height && shape.width == width) {
    to->planes = from.planes;
    return OkStatus();
  }
  const auto each = [&](const auto& scale) {
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      scale(from.planes.data() + c * shape.height * shape.width, to->planes.data() + c * height * width);
    }
    return OkStatus();
  };
  const bool area = interpolation == Interpolation::kArea;
  if ((area || interpolation == Interpolation::kLinear) && shape.height == 2 * height && shape.width == 2 * width) {
    return each([&](const std::uint8_t* plane, std::uint8_t* out) { HalvePlane(plane, shape.height, shape.width, out); });
  }
  if (interpolation == Interpolation::kNearest) {
    return each([&](const std::uint8_t* plane, std::uint8_t* out) { PickNearest(plane, shape, height, width, out); });
  }
  if (area && shape.height >= height && shape.width >= width) {
    const std::vector<Share> columns = Shares(shape.width, width), rows = Shares(shape.height, height);
    return each([&](const std::uint8_t* plane, std::uint8_t* out) { ShrinkPlane(plane, shape.width, width, columns, rows, out); });
  }
  if (area || interpolation == Interpolation::kLinear) {
    const std::vector<Tap> columns = Taps(shape.width, width, true, area), rows = Taps(shape.height, height, false, area);
    return each([&](const std::uint8_t* plane, std::uint8_t* out) { ScalePlane(plane, shape.width, columns, rows, out); });
  }
  const int count = interpolation == Interpolation::kCubic ? 4 : 8;
  const std::vector<Taps8> columns = WideTaps(interpolation, count, shape.width, width), rows = WideTaps(interpolation, count, shape.height, height);
  return each([&](const std::uint8_t* plane, std::uint8_t* out) { ScalePlaneWide(plane, shape, count, columns, rows, out); });
}

}  // namespace poseidon::caffe
