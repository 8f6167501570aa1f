// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>
#include <limits>

#include "frontends/caffe/layers/max_pooling.h"
#include "frontends/caffe/layers/stochastic_pooling.h"
#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/net/random.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

using Pair = std::array<std::int64_t, 2>;  // height, width

// The maximum, the mean or a drawn number (see stochastic_pooling.h) of sliding windows of a plane.
//
// Caffe rounds the number of windows up, drops a last one that would start beyond the padded edge
// if there is padding, and divides a mean by the part of the window that is in the image *and*
// its padding. ATen does the same with ceil_mode and count_include_pad, save that it takes padding
// up to half a window only: above that the image is padded beforehand. Without padding and with a
// stride beyond the window, Caffe makes windows that hold nothing; that is refused. With dilation (Greentea) a window of MAX
// takes every so many-th pixel.
class PoolingLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override {
    return {1, 1, 1, param().pooling_param().pool() == PoolingParameter::MAX ? 2 : 1};
  }

  bool computes_on_device() const override { return !is_stochastic(); }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    const auto& options = param().pooling_param();
    if (bottom[0]->data.dim() != 4) {
      return InvalidArgument("bottom has shape " + ShapeText(bottom[0]->data.sizes()) +
                             ", expected four axes");
    }
    POSEIDON_RETURN_IF_ERROR(SetRounding(options));
    POSEIDON_RETURN_IF_ERROR(CheckForms(options));
    SetWindows(options);
    POSEIDON_RETURN_IF_ERROR(SetDilation(options));
    return options.global_pooling() ? CheckGlobal() : CheckWindows();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const Shape from = bottom[0]->shape();
    if (from.size() != 4) return InvalidArgument("bottom lost its four axes");
    const auto& options = param().pooling_param();
    if (is_max() && from[3] > 0 && from[2] > std::numeric_limits<std::int32_t>::max() / from[3]) {
      return InvalidArgument("bottom has shape " + ShapeText(from) + ", expected planes of fewer than 2^31 pixels");
    }
    const Pair in = {from[2], from[3]};
    if (options.global_pooling()) kernel_ = in;
    for (std::size_t i = 0; i < 2; ++i) extent_[i] = dilation_[i] * (kernel_[i] - 1) + 1;
    const bool clips = pad_[0] > 0 || pad_[1] > 0;  // windows that start in the padding, as Caffe does for both axes
    Pair out{};
    for (std::size_t i = 0; i < 2; ++i) {
      const std::int64_t room = in[i] + 2 * pad_[i] - extent_[i];
      if (room < 0 && (!ceil_ || room <= -stride_[i])) {
        return InvalidArgument("input of shape " + ShapeText(from) + " is smaller than kernel " +
                               ShapeText(kernel_) + " with pad " + ShapeText(pad_));
      }
      out[i] = (ceil_ ? (room + stride_[i] - 1) / stride_[i] : room / stride_[i]) + 1;
      if (clips && (out[i] - 1) * stride_[i] >= in[i] + pad_[i]) --out[i];
      if ((out[i] - 1) * stride_[i] - pad_[i] >= in[i]) {
        return InvalidArgument("the last window starts outside the input of shape " +
                               ShapeText(from) + " (kernel " + ShapeText(kernel_) + ", stride " +
                               ShapeText(stride_) +
                               "), so it holds nothing; round_mode: FLOOR or a smaller stride "
                               "avoids it");
      }
      // The numbers that the last window lacks on the far side of the image, as far as padding goes.
      far_pad_[i] = std::clamp<std::int64_t>(
          (out[i] - 1) * stride_[i] + extent_[i] - in[i] - pad_[i], 0, pad_[i]);
    }
    pads_first_ = 2 * pad_[0] > kernel_[0] || 2 * pad_[1] > kernel_[1];
    const Shape to = {from[0], from[1], out[0], out[1]};
    SetShape(top[0], to, this->options());
    if (top.size() > 1) SetShape(top[1], to, this->options());
    if (is_max() || is_stochastic()) winner_ = at::empty(to, this->options().dtype(at::kLong));
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    if (is_stochastic()) {
      Draw(bottom[0]->data, top[0]->data);
      return OkStatus();
    }
    const at::Tensor image = Image(bottom[0]->data);
    const Pair pad = pads_first_ ? Pair{0, 0} : pad_;
    if (is_max()) {
      if (dilates() || !image.is_cpu()) {
        at::max_pool2d_with_indices_out(top[0]->data, winner_, image, kernel_, stride_, pad, dilation_, ceil_);
      } else {
        MaxOfWindows(image, {kernel_, stride_, pad}, top[0]->data, winner_);
      }
      if (top.size() > 1) WriteWinners(bottom[0]->data.size(3), top[1]);
    } else {
      at::avg_pool2d_out(top[0]->data, image, kernel_, stride_, pad, ceil_,
                         /*count_include_pad=*/true);
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    if (is_stochastic() && phase() != TRAIN) {
      MeanOfDrawsBack(bottom[0]->data, top[0]->diff, &DiffOf(bottom[0]));
      return OkStatus();
    }
    const at::Tensor image = Image(bottom[0]->data);
    const Pair pad = pads_first_ ? Pair{0, 0} : pad_;
    at::Tensor padded;
    at::Tensor& diff = pads_first_ ? padded : DiffOf(bottom[0]);
    if (pads_first_) padded = at::empty(image.sizes(), options());
    if (is_max() || is_stochastic()) {
      at::max_pool2d_with_indices_backward_out(diff, top[0]->diff, image, kernel_, stride_, pad, dilation_,
                                               ceil_, winner_);
    } else {
      at::avg_pool2d_backward_out(diff, top[0]->diff, image, kernel_, stride_, pad, ceil_,
                                  /*count_include_pad=*/true, std::nullopt);
    }
    if (pads_first_) {
      DiffOf(bottom[0]).copy_(padded.narrow(2, pad_[0], bottom[0]->data.size(2))
                                  .narrow(3, pad_[1], bottom[0]->data.size(3)));
    }
    return OkStatus();
  }

 private:
  bool is_max() const { return param().pooling_param().pool() == PoolingParameter::MAX; }

  bool is_stochastic() const { return param().pooling_param().pool() == PoolingParameter::STOCHASTIC; }

  void Draw(const at::Tensor& image, const at::Tensor& top) {
    if (phase() != TRAIN) {
      top.copy_(MeanOfDraws(image, Means(image)));
      return;
    }
    const RandomStream stream(context().seed, RandomPurpose::kPooling, unique_name(), context().pass->batch);
    const auto first_row = static_cast<std::uint64_t>(context().share.rank) * static_cast<std::uint64_t>(image.size(0));
    DrawFromWindows(image, {kernel_, stride_}, stream, first_row, top, winner_);
  }

  // Of windows without padding.
  at::Tensor Means(const at::Tensor& image) const {
    return at::avg_pool2d(image, kernel_, stride_, /*padding=*/0, ceil_, /*count_include_pad=*/true);
  }
  at::Tensor MeansBack(const at::Tensor& gradient, const at::Tensor& image) const {
    return at::avg_pool2d_backward(gradient, image, kernel_, stride_, /*padding=*/0, ceil_, /*count_include_pad=*/true, std::nullopt);
  }

  // The mean of a draw, sum of x^2 over sum of x, or 0 where that sum is not above 0.
  at::Tensor MeanOfDraws(const at::Tensor& image, const at::Tensor& means) const {
    return at::where(means.gt(0), Means(image.mul(image)).div(means), at::Scalar(0));
  }
  // Its gradient is (2 x - the mean of a draw) / sum of x.
  void MeanOfDrawsBack(const at::Tensor& image, const at::Tensor& gradient, at::Tensor* diff) const {
    const at::Tensor means = Means(image);
    const at::Tensor over_means = at::where(means.gt(0), gradient.div(means), at::Scalar(0));
    const at::Tensor taken = MeansBack(over_means.mul(MeanOfDraws(image, means)), image);
    diff->copy_(MeansBack(over_means, image).mul_(image).mul_(2).sub_(taken));
  }

  // Caffe's forks say by ceil_mode what Caffe says by round_mode.
  Status SetRounding(const PoolingParameter& options) {
    ceil_ = options.round_mode() == PoolingParameter::CEIL;
    if (!options.has_ceil_mode()) return OkStatus();
    if (options.has_round_mode() && options.ceil_mode() != ceil_) {
      return InvalidArgument("has round_mode and ceil_mode, which contradict each other");
    }
    ceil_ = options.ceil_mode();
    return OkStatus();
  }

  // Each number is given for both axes at once, or for each axis.
  static Status CheckForms(const PoolingParameter& options) {
    const bool kernel_pair = options.has_kernel_h() && options.has_kernel_w();
    if (options.global_pooling()) {
      if (options.has_kernel_size() || options.has_kernel_h() || options.has_kernel_w()) {
        return InvalidArgument("has global_pooling and a kernel size, expected one of them");
      }
    } else if (options.has_kernel_size() == kernel_pair) {
      return InvalidArgument("needs either kernel_size, or kernel_h and kernel_w");
    }
    const auto one_form = [](bool both, bool h, bool w) { return h == w && !(both && h); };
    if (!one_form(options.has_pad(), options.has_pad_h(), options.has_pad_w())) {
      return InvalidArgument("needs either pad, or pad_h and pad_w");
    }
    if (!one_form(options.has_stride(), options.has_stride_h(), options.has_stride_w())) {
      return InvalidArgument("needs either stride, or stride_h and stride_w");
    }
    return OkStatus();
  }

  void SetWindows(const PoolingParameter& options) {
    kernel_ = options.has_kernel_size() ? Pair{options.kernel_size(), options.kernel_size()}
                                        : Pair{options.kernel_h(), options.kernel_w()};
    stride_ = options.has_stride_h() || options.has_stride_w()
                  ? Pair{options.stride_h(), options.stride_w()}
                  : Pair{options.stride(), options.stride()};
    pad_ = options.has_pad_h() || options.has_pad_w() ? Pair{options.pad_h(), options.pad_w()}
                                                      : Pair{options.pad(), options.pad()};
  }

  Status SetDilation(const PoolingParameter& options) {
    const int given = options.dilation_size();
    if (given > 2) return InvalidArgument("has " + std::to_string(given) + " dilation for two axes, expected one or one for each");
    for (int i = 0; i < 2 && given > 0; ++i) At(dilation_, i) = options.dilation(given == 1 ? 0 : i);
    if (dilation_[0] == 0 || dilation_[1] == 0) return InvalidArgument("needs a dilation above 0");
    if (dilates() && (!is_max() || options.global_pooling())) {
      return InvalidArgument("has a dilation, which takes pool: MAX with a kernel size");
    }
    return OkStatus();
  }
  bool dilates() const { return dilation_ != Pair{1, 1}; }

  Status CheckGlobal() const {
    if (pad_ == Pair{0, 0} && stride_ == Pair{1, 1}) return OkStatus();
    return InvalidArgument("has global_pooling, which takes pad 0 and stride 1 only");
  }

  Status CheckWindows() const {
    for (std::size_t i = 0; i < 2; ++i) {
      if (kernel_[i] == 0 || stride_[i] == 0) {
        return InvalidArgument("needs a kernel size and a stride above 0");
      }
      if (pad_[i] > 0 && is_stochastic()) {
        return InvalidArgument("pads by " + ShapeText(pad_) + ", expected no padding with STOCHASTIC");
      }
      if (pad_[i] >= kernel_[i]) {
        return InvalidArgument("pad " + ShapeText(pad_) + " must be smaller than kernel " +
                               ShapeText(kernel_));
      }
    }
    return OkStatus();
  }

  at::Tensor Image(const at::Tensor& data) const {
    if (!pads_first_) return data;
    const double edge = is_max() ? -std::numeric_limits<double>::infinity() : 0;
    return at::constant_pad_nd(data, {pad_[1], far_pad_[1], pad_[0], far_pad_[0]}, edge);
  }

  // The position of each maximum in its plane, as numbers.
  void WriteWinners(std::int64_t width, Blob* top) const {
    if (!pads_first_) {
      top->data.copy_(winner_);
      return;
    }
    const std::int64_t padded_width = width + pad_[1] + far_pad_[1];
    const at::Tensor row = winner_.div(padded_width, "floor").sub_(pad_[0]);
    const at::Tensor column = winner_.remainder(padded_width).sub_(pad_[1]);
    top->data.copy_(row.mul(width).add_(column));
  }

  Pair kernel_{};
  Pair stride_{};
  Pair pad_{};
  Pair dilation_ = {1, 1};
  Pair extent_{};  // of a window, with what it leaves out
  Pair far_pad_{};
  bool ceil_ = true;
  bool pads_first_ = false;
  at::Tensor winner_;  // of MAX and STOCHASTIC, index within the plane
};

}  // namespace

std::unique_ptr<Layer> MakePoolingLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<PoolingLayer>(param, context);
}

}  // namespace poseidon::caffe
