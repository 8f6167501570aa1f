// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/_slow_conv2d_backward.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include <array>
#include <optional>

#include "frontends/caffe/layers/columns.h"
#include "frontends/caffe/layers/window.h"
#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// Convolution and, transposed, deconvolution, over the spatial axes behind the channel axis: up to three by ATen's kernels,
// more by columns. Several bottoms go through the same weights, each to its own top. Forks have a type of its own for one that
// convolves every channel by itself (two spellings).
class ConvolutionLayer : public Layer {
 public:
  enum class Kind { kPlain, kTransposed, kDepthwise };
  ConvolutionLayer(const LayerParameter& param, const LayerContext& context, Kind kind)
      : Layer(param, context), transposed_(kind == Kind::kTransposed), depthwise_(kind == Kind::kDepthwise) {}

  Arity arity() const override {
    return {1, Arity::kAny, 1, Arity::kAny, /*top_per_bottom=*/true};
  }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    const auto& options = param().convolution_param();
    const std::int64_t axes = bottom[0]->data.dim();
    POSEIDON_RETURN_IF_ERROR(CanonicalAxis("axis", options.axis(), axes, &axis_));
    const std::int64_t spatial = axes - axis_ - 1;
    if (spatial < 1) {
      return InvalidArgument("has no spatial axis behind axis " + std::to_string(axis_) + " of shape " +
                             ShapeText(bottom[0]->data.sizes()));
    }
    POSEIDON_ASSIGN_OR_RETURN(window_, ReadWindow(options, spatial));
    channels_ = bottom[0]->data.size(axis_);
    outputs_ = options.num_output();
    groups_ = depthwise_ && !options.has_group() ? channels_ : std::int64_t{options.group()};
    if (depthwise_ && groups_ != channels_) {
      return InvalidArgument("convolves every channel by itself, but group is " + std::to_string(groups_) +
                             ", expected none or the " + std::to_string(channels_) + " channels of the bottom");
    }
    if (outputs_ == 0) return InvalidArgument("needs num_output above 0");
    if (groups_ == 0 || channels_ % groups_ != 0 || outputs_ % groups_ != 0) {
      return InvalidArgument("group " + std::to_string(groups_) + " does not divide " +
                             std::to_string(channels_) + " input and " +
                             std::to_string(outputs_) + " output channels");
    }
    Shape weight_shape = transposed_ ? Shape{channels_, outputs_ / groups_}
                                     : Shape{outputs_, channels_ / groups_};
    weight_shape.insert(weight_shape.end(), window_.kernel.begin(), window_.kernel.end());
    DeclareParam(weight_shape, options.weight_filler());
    if (options.bias_term()) DeclareParam({outputs_}, options.bias_filler());
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    for (std::size_t i = 0; i < bottom.size(); ++i) {
      const Shape from = bottom[i]->shape();
      if (from.size() != bottom[0]->shape().size() ||
          At(from, axis_) != channels_) {
        return InvalidArgument("bottom " + std::to_string(i) + " has shape " + ShapeText(from) +
                               ", expected " + std::to_string(channels_) +
                               " channels on axis " + std::to_string(axis_) + " of as many as " +
                               ShapeText(bottom[0]->shape()) + " has");
      }
      Shape to(from.begin(), from.begin() + axis_);
      to.push_back(outputs_);
      for (std::size_t j = 0; j < window_.kernel.size(); ++j) {
        const std::int64_t in = from[static_cast<std::size_t>(axis_) + 1 + j];
        const std::int64_t extent = window_.dilation[j] * (window_.kernel[j] - 1) + 1;
        const std::int64_t room = in + 2 * window_.pad[j] - extent;
        const std::int64_t out = transposed_
                                     ? window_.stride[j] * (in - 1) + extent - 2 * window_.pad[j]
                                     : room / window_.stride[j] + 1;
        if (out < 1 || (!transposed_ && room < 0)) {
          return InvalidArgument("input of shape " + ShapeText(from) + " is smaller than kernel " +
                                 ShapeText(window_.kernel) + " with pad " +
                                 ShapeText(window_.pad) + " and dilation " +
                                 ShapeText(window_.dilation));
        }
        to.push_back(out);
      }
      SetShape(top[i], to, this->options());
    }
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    std::optional<at::Tensor> bias;
    if (param().convolution_param().bias_term()) bias = weight(1);
    for (std::size_t i = 0; i < bottom.size(); ++i) {
      const Shape shape = top[i]->shape();
      top[i]->data.reset();  // its memory serves the result
      if (by_columns()) {
        top[i]->data = Columns(bottom[i]->data, shape);
        continue;
      }
      top[i]->data = at::convolution(AsBatch(bottom[i]->data, axis_), weight(0), bias, window_.stride,
                                     window_.pad, window_.dilation, transposed_, Zeros(), groups_)
                         .contiguous()
                         .view(shape);
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    const bool has_bias = param().convolution_param().bias_term();
    const std::array<std::int64_t, 1> bias_size = {outputs_};
    for (std::size_t i = 0; i < bottom.size(); ++i) {
      std::array<bool, 3> wanted = {propagate_down[i], WantsParamDiff(0), has_bias && WantsParamDiff(1)};
      if (!wanted[0] && !wanted[1] && !wanted[2]) continue;
      if (wanted[0]) bottom[i]->diff.reset();
      if (by_columns()) {
        BackByColumns(*top[i], wanted, bottom[i]);
        continue;
      }
      if (by_products()) {
        BackByProducts(*top[i], *bottom[i], {false, wanted[1], wanted[2]});
        if (!wanted[0]) continue;
        wanted = {true, false, false};
      }
      auto [input, kernel, bias] = at::convolution_backward(
          AsBatch(top[i]->diff, axis_), AsBatch(bottom[i]->data, axis_), weight(0),
          has_bias ? at::OptionalIntArrayRef(bias_size) : at::OptionalIntArrayRef(),
          window_.stride, window_.pad, window_.dilation, transposed_, Zeros(), groups_, wanted);
      if (wanted[0]) bottom[i]->diff = input.contiguous().view(bottom[i]->data.sizes());
      if (wanted[1]) AddParamDiff(0, kernel.contiguous());
      if (wanted[2]) AddParamDiff(1, bias);
    }
    return OkStatus();
  }

 private:
  bool by_columns() const { return window_.kernel.size() > 3; }

  // The library's kernels for the CPU compute with eight channels at least, so that of one they take several times as long.
  bool by_products() const {
    return context().placement.on_host() && !transposed_ && channels_ == 1 && window_.kernel.size() == 2 && window_.dilation == Shape{1, 1};
  }

  // The gradients of weight and bias, a product an image.
  void BackByProducts(const Blob& top, const Blob& bottom, const std::array<bool, 3>& wanted) {
    if (!wanted[1] && !wanted[2]) return;
    const auto [input, kernel, bias] = at::_slow_conv2d_backward(AsBatch(top.diff, axis_), AsBatch(bottom.data, axis_), weight(0),
                                                                 window_.kernel, window_.stride, window_.pad, wanted);
    if (wanted[1]) AddParamDiff(0, kernel);
    if (wanted[2]) AddParamDiff(1, bias);
  }

  at::Tensor Columns(const at::Tensor& bottom, const Shape& shape) {
    const at::Tensor image = AsBatch(bottom, axis_);
    Shape to = {image.size(0)};
    to.insert(to.end(), shape.begin() + axis_, shape.end());
    const Shape windows(to.begin() + 2, to.end());
    const at::Tensor result = transposed_ ? TransposedColumns(image, weight(0), to, window_, groups_)
                                          : ConvolveColumns(image, weight(0), window_, windows, groups_);
    if (!param().convolution_param().bias_term()) return result.view(shape);
    Shape along(to.size(), 1);
    along[1] = outputs_;
    return result.add(weight(1).view(along)).view(shape);
  }

  // A transposed convolution's backward pass is a convolution, and the other way round.
  void BackByColumns(const Blob& top, const std::array<bool, 3>& wanted, Blob* bottom) {
    const at::Tensor image = AsBatch(bottom->data, axis_);
    const at::Tensor gradient = AsBatch(top.diff, axis_);
    if (wanted[0]) {
      const Shape windows = image.sizes().slice(2).vec();
      const at::Tensor diff = transposed_ ? ConvolveColumns(gradient, weight(0), window_, windows, groups_)
                                          : TransposedColumns(gradient, weight(0), image.sizes(), window_, groups_);
      bottom->diff = diff.view(bottom->data.sizes());
    }
    if (wanted[1]) {
      AddParamDiff(0, transposed_ ? WeightGradient(gradient, image, weight(0).sizes(), window_, groups_)
                                  : WeightGradient(image, gradient, weight(0).sizes(), window_, groups_));
    }
    if (wanted[2]) AddParamDiff(1, gradient.flatten(2).sum(at::IntArrayRef{0, 2}));
  }

  Shape Zeros() const { return Shape(window_.kernel.size(), 0); }

  const bool transposed_;
  const bool depthwise_;  // a group for every channel
  std::int64_t axis_ = 1;
  std::int64_t channels_ = 0;
  std::int64_t outputs_ = 0;
  std::int64_t groups_ = 1;
  Window window_;
};

}  // namespace

std::unique_ptr<Layer> MakeConvolutionLayer(const LayerParameter& param,
                                            const LayerContext& context) {
  return std::make_unique<ConvolutionLayer>(param, context, ConvolutionLayer::Kind::kPlain);
}

std::unique_ptr<Layer> MakeDeconvolutionLayer(const LayerParameter& param,
                                              const LayerContext& context) {
  return std::make_unique<ConvolutionLayer>(param, context, ConvolutionLayer::Kind::kTransposed);
}

std::unique_ptr<Layer> MakeDepthwiseConvolutionLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ConvolutionLayer>(param, context, ConvolutionLayer::Kind::kDepthwise);
}

}  // namespace poseidon::caffe
