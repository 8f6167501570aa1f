// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/layers/stochastic_pooling.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// The size of the planes and of what they are pooled into.
struct Planes {
  Planes(const at::Tensor& image, const at::Tensor& top)
      : count(image.size(0) * image.size(1)),
        channels(image.size(1)),
        height(image.size(2)),
        width(image.size(3)),
        rows(top.size(2)),
        columns(top.size(3)) {}
  std::int64_t count, channels, height, width, rows, columns;
};

// Calls visit(element of the pooled plane, window) for all windows of a plane, where window(x) calls x(pixel) for its pixels
// in order until that returns true.
template <typename Visit>
void ForWindows(const Planes& planes, const PlaneWindows& windows, Visit&& visit) {
  for (std::int64_t row = 0; row < planes.rows; ++row) {
    for (std::int64_t column = 0; column < planes.columns; ++column) {
      const std::int64_t top = row * windows.stride[0];
      const std::int64_t left = column * windows.stride[1];
      const std::int64_t bottom = std::min(top + windows.kernel[0], planes.height);
      const std::int64_t right = std::min(left + windows.kernel[1], planes.width);
      visit(row * planes.columns + column, [&](auto&& see) {
        for (std::int64_t y = top; y < bottom; ++y) {
          for (std::int64_t x = left; x < right; ++x) {
            if (see(y * planes.width + x)) return;
          }
        }
      });
    }
  }
}

template <typename T>
void Draw(const at::Tensor& image, const PlaneWindows& windows, const RandomStream& stream, std::uint64_t first_row,
          const at::Tensor& top, const at::Tensor& chosen) {
  const Planes planes(image, top);
  const T* in = image.const_data_ptr<T>();
  T* out = top.mutable_data_ptr<T>();
  std::int64_t* where = chosen.mutable_data_ptr<std::int64_t>();
  const std::int64_t pooled = planes.rows * planes.columns;
  at::parallel_for(0, planes.count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      const T* pixels = in + plane * planes.height * planes.width;
      const std::uint64_t sample = first_row + static_cast<std::uint64_t>(plane / planes.channels);
      const std::int64_t before = plane % planes.channels * pooled;
      ForWindows(planes, windows, [&](std::int64_t element, auto&& window) {
        const auto word = static_cast<std::uint64_t>(before + element);
        const double u = UnitInterval(At(stream.Draw(sample, word / 4), word % 4)) + 0x1p-32;
        T sum = 0;
        window([&](std::int64_t pixel) { return sum += pixels[pixel], false; });
        const T reached = static_cast<T>(u) * sum;
        T so_far = 0;
        std::int64_t last = 0;
        window([&](std::int64_t pixel) {
          last = pixel;
          so_far += pixels[pixel];
          return so_far >= reached;
        });
        out[plane * pooled + element] = pixels[last];
        where[plane * pooled + element] = last;
      });
    }
  });
}

}  // namespace

void DrawFromWindows(const at::Tensor& image, const PlaneWindows& windows, const RandomStream& stream, std::uint64_t first_row,
                     const at::Tensor& top, const at::Tensor& chosen) {
  return image.scalar_type() == at::kDouble ? Draw<double>(image, windows, stream, first_row, top, chosen)
                                             : Draw<float>(image, windows, stream, first_row, top, chosen);
}

}  // namespace poseidon::caffe
