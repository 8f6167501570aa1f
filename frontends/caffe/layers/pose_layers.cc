// SPDX-License-Identifier: Apache-2.0
// What OpenPose does to a net's maps: ImResize enlarges them, Nms and Maximum find where they are largest.
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

constexpr double kLargestSide = 1 << 20;

Status CheckMaps(at::IntArrayRef sizes) {
  if (sizes.size() == 4 && CountOf(sizes) > 0) return OkStatus();
  return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected maps: four axes");
}

// All images of the bottom are one image in several sizes: image n fills the part of its maps that begins `pad` pixels from each border. Each is
// scaled to the size of the top with cubic weights (sharpness -0.5), and the top, one image, is their mean. Scaling is
// linear and takes rows and columns apart, so it is a product with a matrix from either side.
class ImResizeLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }
  bool computes_on_device() const override { return false; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    POSEIDON_RETURN_IF_ERROR(CheckMaps(sizes));
    const ImResizeParameter& options = param().imresize_param();
    const auto factor = static_cast<double>(options.factor());
    const Shape asked = {options.target_spatial_height(), options.target_spatial_width()};
    Shape out = {1, sizes[1], 0, 0};
    for (std::size_t i = 0; i < 2; ++i) {
      const double side = factor == 0 ? static_cast<double>(asked[i]) : std::floor(static_cast<double>(sizes[2 + i]) * factor);
      if (!(side >= 1 && side <= kLargestSide)) return InvalidArgument("would make maps of side " + std::to_string(side));
      out[2 + i] = static_cast<std::int64_t>(side);
    }
    for (auto [axis, matrices] : {std::pair{std::size_t{2}, &rows_}, std::pair{std::size_t{3}, &columns_}}) {
      POSEIDON_ASSIGN_OR_RETURN(*matrices, Scalings(sizes[0], sizes[axis], out[axis]));
    }
    SetShape(top[0], out, this->options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    top[0]->data.copy_(rows_.matmul(bottom[0]->data).matmul(columns_.transpose(2, 3)).mean(at::IntArrayRef({0}), /*keepdim=*/true));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    DiffOf(bottom[0]).copy_(rows_.transpose(2, 3).matmul(top[0]->diff).matmul(columns_).div_(bottom[0]->data.size(0)));
    return OkStatus();
  }

 private:
  // [images, 1, to, from]: what of each pixel of an axis goes into each of the top.
  Result<at::Tensor> Scalings(std::int64_t images, std::int64_t from, std::int64_t to) const {
    const ImResizeParameter& options = param().imresize_param();
    at::Tensor matrices = at::zeros({images, 1, to, from}, this->options().dtype(at::kDouble));
    auto* numbers = matrices.mutable_data_ptr<double>();
    for (std::int64_t image = 0; image < images; ++image, numbers += to * from) {
      const double less = 1 - static_cast<double>(options.start_scale()) + static_cast<double>(image) * static_cast<double>(options.scale_gap());
      const double pad = std::floor(static_cast<double>(from / 2) * less + kRounding);
      if (!(pad >= 0 && 2 * pad < static_cast<double>(from))) {
        return InvalidArgument("image " + std::to_string(image) + " would fill " + std::to_string(static_cast<double>(from) - 2 * pad) + " of " +
                               std::to_string(from) + " pixels by start_scale and scale_gap");
      }
      Fill(static_cast<std::int64_t>(pad), from, to, numbers);
    }
    return matrices.to(this->options());
  }

  static void Fill(std::int64_t pad, std::int64_t from, std::int64_t to, double* numbers) {
    const std::int64_t used = from - 2 * pad;
    const double step = static_cast<double>(used) / static_cast<double>(to);
    for (std::int64_t i = 0; i < to; ++i, numbers += from) {
      const double place = (static_cast<double>(i) + 0.5) * step - 0.5;
      const std::int64_t second = std::max<std::int64_t>(0, static_cast<std::int64_t>(place + kRounding));
      const std::int64_t third = std::min(second + 1, used - 1);
      const double d = place - static_cast<double>(second);
      numbers[pad + std::max<std::int64_t>(0, second - 1)] += ((-0.5 * d + 1) * d - 0.5) * d;
      numbers[pad + second] += (1.5 * d - 2.5) * d * d + 1;
      numbers[pad + third] += ((-1.5 * d + 2) * d + 0.5) * d;
      numbers[pad + std::min(third + 1, used - 1)] += (0.5 * d - 0.5) * d * d;
    }
  }

  static constexpr double kRounding = 1e-5;
  at::Tensor rows_, columns_;
};

// The peaks of the first num_parts maps, N x num_parts x (max_peaks + 1) x 3: how many there are, then x, y and height of each. A peak is
// above `threshold` and above its eight neighbours, and not at the border. x and y are the mean of the seven by seven pixels around
// it that are above 0, by their numbers, but for the first row and column.
class NmsLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }
  bool computes_on_device() const override { return false; }
  bool differentiable() const override { return false; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    POSEIDON_RETURN_IF_ERROR(CheckMaps(sizes));
    const NmsParameter& options = param().nms_param();
    if (options.num_parts() == 0 || options.num_parts() > sizes[1]) {
      return InvalidArgument("num_parts is " + std::to_string(options.num_parts()) + ", expected at most the " + std::to_string(sizes[1]) + " maps");
    }
    SetShape(top[0], {sizes[0], options.num_parts(), std::int64_t{options.max_peaks()} + 1, 3}, this->options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    top[0]->data.zero_();
    const at::Tensor from = bottom[0]->data.to(at::kDouble).contiguous();
    const std::int64_t parts = top[0]->data.size(1), height = from.size(2), width = from.size(3);
    for (std::int64_t image = 0; image < from.size(0); ++image) {
      for (std::int64_t part = 0; part < parts; ++part) {
        const Map map{from.const_data_ptr<double>() + (image * from.size(1) + part) * height * width, height, width};
        WritePeaks(map, top[0]->data[image][part]);
      }
    }
    return OkStatus();
  }

 private:
  struct Map {
    const double* numbers;
    std::int64_t height, width;
    double At(std::int64_t y, std::int64_t x) const { return numbers[y * width + x]; }
  };

  static bool IsPeak(const Map& map, std::int64_t y, std::int64_t x) {
    for (std::int64_t dy = -1; dy <= 1; ++dy) {
      for (std::int64_t dx = -1; dx <= 1; ++dx) {
        if ((dy != 0 || dx != 0) && !(map.At(y, x) > map.At(y + dy, x + dx))) return false;
      }
    }
    return true;
  }

  void WritePeaks(const Map& map, const at::Tensor& rows) const {
    std::int64_t count = 0;
    for (std::int64_t y = 1; y + 1 < map.height; ++y) {
      for (std::int64_t x = 1; x + 1 < map.width; ++x) {
        if (!(map.At(y, x) > static_cast<double>(param().nms_param().threshold())) || !IsPeak(map, y, x)) continue;
        if (++count < rows.size(0)) WritePeak(map, y, x, rows[count]);
      }
    }
    rows[0][0].fill_(count);
  }

  static void WritePeak(const Map& map, std::int64_t y, std::int64_t x, const at::Tensor& row) {
    double weight = 0, mean_x = 0, mean_y = 0;
    for (std::int64_t j = std::max<std::int64_t>(1, y - kReach); j <= std::min(map.height - 1, y + kReach); ++j) {
      for (std::int64_t i = std::max<std::int64_t>(1, x - kReach); i <= std::min(map.width - 1, x + kReach); ++i) {
        const double number = std::max(0.0, map.At(j, i));
        weight += number;
        mean_x += number * static_cast<double>(i);
        mean_y += number * static_cast<double>(j);
      }
    }
    row[0].fill_(weight > 0 ? mean_x / weight : static_cast<double>(x));
    row[1].fill_(weight > 0 ? mean_y / weight : static_cast<double>(y));
    row[2].fill_(map.At(y, x));
  }

  static constexpr std::int64_t kReach = 3;
};

// x, y and the number of the largest of each map, N x C x 1 x 3; zeros where none is above 0.
class MaximumLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }
  bool computes_on_device() const override { return false; }
  bool differentiable() const override { return false; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    POSEIDON_RETURN_IF_ERROR(CheckMaps(sizes));
    SetShape(top[0], {sizes[0], sizes[1], 1, 3}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    const auto [largest, place] = bottom[0]->data.view({sizes[0], sizes[1], sizes[2] * sizes[3]}).max(2);
    const at::Tensor above = largest.gt(0);
    const at::Tensor out = top[0]->data.view({sizes[0], sizes[1], 3});
    out.select(2, 0).copy_(place.remainder(sizes[3]).mul_(above));
    out.select(2, 1).copy_(place.div(sizes[3], "floor").mul_(above));
    out.select(2, 2).copy_(largest.mul(above));
    return OkStatus();
  }
};

}  // namespace

std::unique_ptr<Layer> MakeImResizeLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ImResizeLayer>(param, context);
}

std::unique_ptr<Layer> MakeNmsLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<NmsLayer>(param, context);
}

std::unique_ptr<Layer> MakeMaximumLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<MaximumLayer>(param, context);
}

}  // namespace poseidon::caffe
