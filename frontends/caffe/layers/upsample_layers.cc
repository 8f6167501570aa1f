// SPDX-License-Identifier: Apache-2.0
// Layers that enlarge images: Upsample of SegNet and of YOLO's ports, Interp of DeepLab and PSPNet.
#include <ATen/ops/aminmax.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_bilinear2d_backward.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest2d_backward.h>

#include <array>
#include <limits>
#include <tuple>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

using Extent = std::array<std::int64_t, 2>;  // height, width

constexpr std::int64_t kLargestSide = std::numeric_limits<std::int32_t>::max();

// With two bottoms (SegNet), puts every number of the first where the second, the second top of a max pooling, says it came
// from, and 0 elsewhere; the size is upsample_h x upsample_w, or that of the bottom times a scale. With one bottom, repeats
// every number `scale` times in both directions.
class UpsampleLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {1, 2, 1, 1}; }
  bool AllowForceBackward(int bottom) const override { return bottom == 0; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    const auto& options = param().upsample_param();
    sized_ = options.has_upsample_h() || options.has_upsample_w();
    if (sized_ && (options.upsample_h() < 2 || options.upsample_w() < 2)) {
      return InvalidArgument("needs upsample_h and upsample_w above 1");
    }
    const bool pair = options.has_scale_h() || options.has_scale_w();
    if (!sized_ && pair && (options.has_scale() || !options.has_scale_h() || !options.has_scale_w())) {
      return InvalidArgument("needs upsample_h and upsample_w, or scale, or scale_h and scale_w");
    }
    scale_ = pair ? Extent{options.scale_h(), options.scale_w()} : Extent{options.scale(), options.scale()};
    pad_ = {options.pad_out_h() ? 1 : 0, options.pad_out_w() ? 1 : 0};
    for (std::size_t i = 0; i < 2 && !sized_; ++i) {
      if (scale_[i] < 1 || (bottom.size() == 2 && scale_[i] < 2)) return InvalidArgument("needs a scale above 1");
      if (pad_[i] != 0 && scale_[i] != 2) return InvalidArgument("pad_out_h and pad_out_w need a scale of 2");
    }
    if (bottom.size() == 1 && (sized_ || pad_ != Extent{0, 0})) {
      return InvalidArgument("upsample_h, upsample_w, pad_out_h and pad_out_w need a second bottom, the mask of a pooling layer");
    }
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    if (sizes.size() != 4) return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected four axes");
    if (bottom.size() == 2 && bottom[1]->data.sizes() != sizes) {
      return InvalidArgument("bottom has shape " + ShapeText(sizes) + " and the mask " + ShapeText(bottom[1]->data.sizes()) +
                             ", expected equal shapes");
    }
    const auto& options = param().upsample_param();
    Extent out = {options.upsample_h(), options.upsample_w()};
    for (std::size_t i = 0; i < 2 && !sized_; ++i) out[i] = sizes[2 + i] * scale_[i] - pad_[i];
    if (out[0] > kLargestSide || out[1] > kLargestSide) return InvalidArgument("would make images of " + ShapeText(out));
    SetShape(top[0], {sizes[0], sizes[1], out[0], out[1]}, this->options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    at::Tensor& out = top[0]->data;
    if (bottom.size() == 1) {
      at::upsample_nearest2d_out(out, bottom[0]->data, out.sizes().slice(2));
      return OkStatus();
    }
    index_ = Planes(bottom[1]->data).to(at::kLong);
    const std::int64_t places = out.size(2) * out.size(3);
    if (index_.numel() > 0) {
      const auto [low, high] = at::aminmax(index_);
      const std::int64_t least = low.item<std::int64_t>();
      const std::int64_t most = high.item<std::int64_t>();
      if (least < 0 || most >= places) {
        return InvalidArgument("the mask names place " + std::to_string(least < 0 ? least : most) + " of an image of " +
                               ShapeText(out.sizes().slice(2)) + ": the size is not that of the pooling layer's bottom");
      }
    }
    Planes(out.zero_()).scatter_(1, index_, Planes(bottom[0]->data));
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (bottom.size() == 2 && propagate_down[1]) return InvalidArgument("cannot propagate to the mask (bottom 1)");
    if (!propagate_down[0]) return OkStatus();
    at::Tensor& diff = DiffOf(bottom[0]);
    if (bottom.size() == 1) {
      at::upsample_nearest2d_backward_out(diff, top[0]->diff, top[0]->data.sizes().slice(2), diff.sizes());
    } else {
      Planes(diff).copy_(Planes(top[0]->diff).gather(1, index_));
    }
    return OkStatus();
  }

 private:
  static at::Tensor Planes(const at::Tensor& images) {
    return images.view({images.size(0) * images.size(1), images.size(2) * images.size(3)});
  }

  bool sized_ = false;
  Extent scale_{};
  Extent pad_{};
  at::Tensor index_;
};

// Bilinear, the corners of bottom and top on each other. pad_beg and pad_end, below 0, cut the bottom first.
class InterpLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const auto& options = param().interp_param();
    if (options.pad_beg() > 0 || options.pad_end() > 0) return InvalidArgument("needs pad_beg and pad_end of 0 or less: they cut");
    if (options.shrink_factor() < 1 || options.zoom_factor() < 1) {
      return InvalidArgument("needs a shrink_factor and a zoom_factor of 1 or more");
    }
    if (!options.has_shrink_factor() && !options.has_zoom_factor() && (options.height() < 1 || options.width() < 1)) {
      return InvalidArgument("needs height and width, a zoom_factor, or a shrink_factor");
    }
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    if (sizes.size() != 4) return InvalidArgument("bottom has shape " + ShapeText(sizes) + ", expected four axes");
    const auto& options = param().interp_param();
    // height and width yield to a single factor, and both factors yield to them: so the fork has it.
    const bool sized = options.has_height() && options.has_width() && options.has_shrink_factor() == options.has_zoom_factor();
    const std::int64_t cut = std::int64_t{options.pad_beg()} + options.pad_end();
    Extent out = {options.height(), options.width()};
    for (std::size_t i = 0; i < 2; ++i) {
      cut_[i] = sizes[2 + i] + cut;
      if (cut_[i] < 1) return InvalidArgument("pad_beg and pad_end leave nothing of the bottom of shape " + ShapeText(sizes));
      if (!sized) out[i] = ((cut_[i] - 1) / options.shrink_factor()) * options.zoom_factor() + 1;
      if (out[i] < 1 || out[i] > kLargestSide) return InvalidArgument("would make images of " + ShapeText(out));
    }
    SetShape(top[0], {sizes[0], sizes[1], out[0], out[1]}, this->options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    at::Tensor& out = top[0]->data;
    at::upsample_bilinear2d_out(out, Cut(bottom[0]->data).contiguous(), out.sizes().slice(2), /*align_corners=*/true);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const at::Tensor part = Cut(DiffOf(bottom[0]).zero_());
    // The engine's own adds in an order of chance on a device. The sum is that of two products: of rows, and of columns.
    if (!part.is_cpu()) {
      const at::Tensor rows = Spread(top[0]->diff.size(2), part.size(2)), columns = Spread(top[0]->diff.size(3), part.size(3));
      part.copy_(at::matmul(at::matmul(rows.t(), top[0]->diff), columns));
      return OkStatus();
    }
    part.copy_(at::upsample_bilinear2d_backward(top[0]->diff, top[0]->data.sizes().slice(2), part.sizes(), /*align_corners=*/true));
    return OkStatus();
  }

 private:
  // What each of `from` numbers in a row counts in each of `to` that they become: [to, from].
  at::Tensor Spread(std::int64_t to, std::int64_t from) const {
    const at::Tensor each = at::eye(from, options()).view({1, 1, from, from});
    return at::upsample_bilinear2d(each, {to, from}, /*align_corners=*/true).view({to, from});
  }
  at::Tensor Cut(const at::Tensor& images) const {
    const std::int64_t first = -std::int64_t{param().interp_param().pad_beg()};
    return images.narrow(2, first, cut_[0]).narrow(3, first, cut_[1]);
  }

  Extent cut_{};  // what is left of the bottom
};

}  // namespace

std::unique_ptr<Layer> MakeUpsampleLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<UpsampleLayer>(param, context);
}

std::unique_ptr<Layer> MakeInterpLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<InterpLayer>(param, context);
}

}  // namespace poseidon::caffe
