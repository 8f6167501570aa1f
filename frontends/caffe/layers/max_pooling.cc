// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/layers/max_pooling.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace poseidon::caffe {
namespace {

// Comparisons that a thread takes at least: waking one for less costs more than it saves.
constexpr std::int64_t kGrain = std::int64_t{1} << 16;

struct PlaneShape {
  std::int64_t height, width, rows, columns;  // of the plane, and of what it is pooled into
};

// A row of windows goes over the plane together, one pixel of each at a time, so that the loops over windows have no branch and
// vectorise.
template <typename T>
class RowOfWindows {
 public:
  RowOfWindows(const PlaneShape& shape, const PaddedWindows& windows)
      : shape_(shape), windows_(windows), largest_(static_cast<std::size_t>(shape.columns)), place_(largest_.size()) {}

  void Pool(const T* plane, std::int64_t row, T* top, std::int64_t* winner) {
    const std::int64_t first = row * windows_.stride[0] - windows_.pad[0];
    const std::int64_t begin = std::max<std::int64_t>(first, 0), end = std::min(first + windows_.kernel[0], shape_.height);
    for (std::int64_t j = 0; j < shape_.columns; ++j) {
      const std::int64_t left = std::max<std::int64_t>(j * windows_.stride[1] - windows_.pad[1], 0);
      place_[static_cast<std::size_t>(j)] = static_cast<std::int32_t>(begin * shape_.width + left);
    }
    std::fill(largest_.begin(), largest_.end(), -std::numeric_limits<T>::infinity());
    for (std::int64_t y = begin; y < end; ++y) {
      for (std::int64_t x = 0; x < windows_.kernel[1]; ++x) See(plane, y * shape_.width, x - windows_.pad[1]);
    }
    std::copy(largest_.begin(), largest_.end(), top);
    std::copy(place_.begin(), place_.end(), winner);
  }

 private:
  // The pixels that are `x` behind the windows' left edges, where they are in the plane's line, which begins at `line`.
  void See(const T* plane, std::int64_t line, std::int64_t x) {
    const std::int64_t stride = windows_.stride[1];
    const std::int64_t begin = x >= 0 ? 0 : (-x + stride - 1) / stride;
    const std::int64_t end = std::min(shape_.columns, x >= shape_.width ? 0 : (shape_.width - 1 - x) / stride + 1);
    const auto windows = static_cast<std::int32_t>(std::max<std::int64_t>(end - begin, 0));
    const std::int64_t first = line + x + begin * stride;
    if (stride == 1) return SeeEach<1>(plane, first, begin, windows, 1);
    if (stride == 2) return SeeEach<2>(plane, first, begin, windows, 2);
    SeeEach<0>(plane, first, begin, windows, static_cast<std::int32_t>(stride));
  }

  // From pixel `first` on, for `windows` windows from number `begin` on. kStride is the stride where the compiler is to know it, else 0.
  template <std::int32_t kStride>
  void SeeEach(const T* plane, std::int64_t first, std::int64_t begin, std::int32_t windows, std::int32_t any_stride) {
    const std::int32_t stride = kStride > 0 ? kStride : any_stride;
    const auto at = static_cast<std::int32_t>(first);
    const T* __restrict const pixels = plane + first;
    T* __restrict const largest = largest_.data() + begin;
    std::int32_t* __restrict const place = place_.data() + begin;
    for (std::int32_t j = 0; j < windows; ++j) {
      const T number = pixels[j * stride];
      const bool wins = (number > largest[j]) | (number != number);
      largest[j] = wins ? number : largest[j];
      place[j] = wins ? at + j * stride : place[j];
    }
  }

  const PlaneShape shape_;
  const PaddedWindows windows_;
  std::vector<T> largest_;
  std::vector<std::int32_t> place_;
};

template <typename T>
void Pool(const at::Tensor& image, const PaddedWindows& windows, const at::Tensor& top, const at::Tensor& winner) {
  const PlaneShape shape{image.size(2), image.size(3), top.size(2), top.size(3)};
  const std::int64_t pooled = shape.rows * shape.columns;
  const T* const in = image.const_data_ptr<T>();
  T* const out = top.mutable_data_ptr<T>();
  std::int64_t* const where = winner.mutable_data_ptr<std::int64_t>();
  const std::int64_t comparisons = pooled * windows.kernel[0] * windows.kernel[1];
  at::parallel_for(0, image.size(0) * image.size(1), kGrain / std::max<std::int64_t>(comparisons, 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    RowOfWindows<T> row_of_windows(shape, windows);
    for (std::int64_t plane = begin; plane < end; ++plane) {
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        const std::int64_t to = plane * pooled + row * shape.columns;
        row_of_windows.Pool(in + plane * shape.height * shape.width, row, out + to, where + to);
      }
    }
  });
}

}  // namespace

void MaxOfWindows(const at::Tensor& image, const PaddedWindows& windows, const at::Tensor& top, const at::Tensor& winner) {
  if (image.scalar_type() == at::kDouble) {
    Pool<double>(image, windows, top, winner);
  } else {
    Pool<float>(image, windows, top, winner);
  }
}

}  // namespace poseidon::caffe
