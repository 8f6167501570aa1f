// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>

#include <algorithm>
#include <cmath>

#include "frontends/caffe/layers/neuron_layer.h"

namespace poseidon::caffe {
namespace {

// y = x * s^-beta with, across channels, s = k + alpha / n * (sum of x^2 over the n channels around)
// and, within a channel, s = 1 + alpha * (mean of x^2 over the n x n pixels around, padded by zeros).
//
// Across channels the sums of a window are those of the previous one plus the channel that enters
// minus the channel that leaves; to keep rounding from piling up in such running sums, each window
// is summed anew instead: n is small, and the loop runs along the pixels, where it vectorises.
class LrnLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  bool works_in_place() const override { return false; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    const auto& options = param().lrn_param();
    size_ = options.local_size();
    alpha_ = static_cast<double>(options.alpha());
    beta_ = static_cast<double>(options.beta());
    k_ = static_cast<double>(options.k());
    within_ = options.norm_region() == LRNParameter::WITHIN_CHANNEL;
    if (size_ % 2 == 0) {
      return InvalidArgument("local_size is " + std::to_string(size_) + ", expected an odd number");
    }
    if (bottom[0]->data.dim() != 4) {
      return InvalidArgument("bottom has shape " + ShapeText(bottom[0]->data.sizes()) +
                             ", expected four axes");
    }
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    scale_ = at::empty_like(bottom[0]->data);
    return NeuronLayer::Reshape(bottom, top);
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const at::Tensor& in = bottom[0]->data;
    if (within_) {
      at::avg_pool2d_out(scale_, at::mul(in, in), size_, 1, size_ / 2, false, true);
      scale_.mul_(alpha_).add_(1);
      at::pow_out(top[0]->data, scale_, -beta_);
      top[0]->data.mul_(in);
      return OkStatus();
    }
    if (!in.is_cpu()) {
      scale_.copy_(SumAcross(at::mul(in, in))).mul_(alpha_ / static_cast<double>(size_)).add_(k_);
      at::pow_out(top[0]->data, scale_, -beta_);
      top[0]->data.mul_(in);
      return OkStatus();
    }
    AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "lrn", [&] {
      ForwardAcross(in.const_data_ptr<scalar_t>(), scale_.data_ptr<scalar_t>(),
                    top[0]->data.data_ptr<scalar_t>(), in.size(1), in.size(2) * in.size(3),
                    in.size(0));
    });
    if (!three_quarters()) {
      at::pow_out(top[0]->data, scale_, -beta_);
      top[0]->data.mul_(in);
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const at::Tensor& in = bottom[0]->data;
    at::Tensor& diff = DiffOf(bottom[0]);
    const at::Tensor& gradient = top[0]->diff;
    if (within_) {
      // dx = dy s^-beta + 2 x (pooling backward of dy y / s * -beta alpha)
      // y / s from x: a layer above may work in place on the top.
      const at::Tensor through =
          at::pow(scale_, -beta_ - 1).mul_(in).mul_(gradient).mul_(-beta_ * alpha_);
      at::avg_pool2d_backward_out(diff, through, in, size_, 1, size_ / 2, false, true,
                                  std::nullopt);
      diff.mul_(in).mul_(2).add_(at::pow(scale_, -beta_).mul_(gradient));
      return OkStatus();
    }
    if (!in.is_cpu()) {
      const at::Tensor ratio = at::mul(gradient, top[0]->data).div_(scale_);
      at::pow_out(diff, scale_, -beta_);
      diff.mul_(gradient).sub_(SumAcross(ratio).mul_(in).mul_(2 * alpha_ * beta_ / static_cast<double>(size_)));
      return OkStatus();
    }
    // Starts from dy s^-beta; where that is not simple to vectorise ATen computes it.
    if (!three_quarters()) {
      at::pow_out(diff, scale_, -beta_);
      diff.mul_(gradient);
    }
    AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "lrn", [&] {
      BackwardAcross(in.const_data_ptr<scalar_t>(), scale_.const_data_ptr<scalar_t>(),
                     top[0]->data.const_data_ptr<scalar_t>(),
                     gradient.const_data_ptr<scalar_t>(), diff.data_ptr<scalar_t>(), in.size(1),
                     in.size(2) * in.size(3), in.size(0));
    });
    return OkStatus();
  }

 private:
  // The sum over the n channels around each, on a device: of n views of the channels between zeros.
  at::Tensor SumAcross(const at::Tensor& numbers) const {
    const at::Tensor padded = at::constant_pad_nd(numbers, {0, 0, 0, 0, size_ / 2, size_ / 2}, 0);
    at::Tensor sum = padded.narrow(1, 0, numbers.size(1)).clone();
    for (std::int64_t i = 1; i < size_; ++i) sum.add_(padded.narrow(1, i, numbers.size(1)));
    return sum;
  }

  // The exponent of AlexNet and its kin: two square roots instead of a power.
  bool three_quarters() const { return beta_ == 0.75; }
  template <typename T>
  static T PowMinusThreeQuarters(T s) {
    return T{1} / std::sqrt(s * std::sqrt(s));
  }

  static constexpr std::int64_t kStrip = 512;  // pixels whose window sums stay in the L1 cache

  // Calls work(image, first pixel, pixels) for strips of all images, in parallel.
  template <typename Work>
  static void ForStrips(std::int64_t images, std::int64_t pixels, const Work& work) {
    const std::int64_t strips = (pixels + kStrip - 1) / kStrip;
    at::parallel_for(0, images * strips, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = i % strips * kStrip;
        work(i / strips, first, std::min(kStrip, pixels - first));
      }
    });
  }

  template <typename T>
  void ForwardAcross(const T* in, T* scale, T* out, std::int64_t channels, std::int64_t pixels,
                     std::int64_t images) const {
    const std::int64_t half = size_ / 2;
    const T factor = static_cast<T>(alpha_ / static_cast<double>(size_));
    const T offset = static_cast<T>(k_);
    const bool finish = three_quarters();
    ForStrips(images, pixels, [&](std::int64_t image, std::int64_t first, std::int64_t count) {
      T sums[kStrip];
      for (std::int64_t c = 0; c < channels; ++c) {
        std::fill_n(sums, count, T{0});
        const std::int64_t last = std::min(channels - 1, c + half);
        for (std::int64_t n = std::max<std::int64_t>(0, c - half); n <= last; ++n) {
          const T* x = in + (image * channels + n) * pixels + first;
          for (std::int64_t p = 0; p < count; ++p) sums[p] += x[p] * x[p];
        }
        const std::int64_t at = (image * channels + c) * pixels + first;
        for (std::int64_t p = 0; p < count; ++p) scale[at + p] = offset + factor * sums[p];
        if (!finish) continue;
        for (std::int64_t p = 0; p < count; ++p) {
          out[at + p] = in[at + p] * PowMinusThreeQuarters(scale[at + p]);
        }
      }
    });
  }

  // dx_i = dy_i s_i^-beta - 2 alpha beta / n * x_i * (sum over windows around i of dy y / s)
  template <typename T>
  void BackwardAcross(const T* in, const T* scale, const T* out, const T* gradient, T* diff,
                      std::int64_t channels, std::int64_t pixels, std::int64_t images) const {
    const std::int64_t half = size_ / 2;
    const T factor = static_cast<T>(2 * alpha_ * beta_ / static_cast<double>(size_));
    const bool start = three_quarters();
    ForStrips(images, pixels, [&](std::int64_t image, std::int64_t first, std::int64_t count) {
      // The n ratios dy y / s that a window needs, as a ring over channels.
      std::vector<T> ring(static_cast<std::size_t>(size_ * count));
      const auto slot = [&](std::int64_t c) { return ring.data() + c % size_ * count; };
      const auto enter = [&](std::int64_t c) {
        const std::int64_t at = (image * channels + c) * pixels + first;
        T* ratio = slot(c);
        for (std::int64_t p = 0; p < count; ++p) {
          ratio[p] = gradient[at + p] * out[at + p] / scale[at + p];
        }
      };
      for (std::int64_t c = 0; c < std::min(half, channels); ++c) enter(c);
      T sums[kStrip];
      for (std::int64_t c = 0; c < channels; ++c) {
        if (c + half < channels) enter(c + half);
        std::fill_n(sums, count, T{0});
        const std::int64_t last = std::min(channels - 1, c + half);
        for (std::int64_t n = std::max<std::int64_t>(0, c - half); n <= last; ++n) {
          const T* ratio = slot(n);
          for (std::int64_t p = 0; p < count; ++p) sums[p] += ratio[p];
        }
        const std::int64_t at = (image * channels + c) * pixels + first;
        if (start) {
          for (std::int64_t p = 0; p < count; ++p) {
            diff[at + p] = gradient[at + p] * PowMinusThreeQuarters(scale[at + p]);
          }
        }
        for (std::int64_t p = 0; p < count; ++p) diff[at + p] -= factor * in[at + p] * sums[p];
      }
    });
  }

  std::int64_t size_ = 5;
  double alpha_ = 1;
  double beta_ = 0.75;
  double k_ = 1;
  bool within_ = false;
  at::Tensor scale_;
};

}  // namespace

std::unique_ptr<Layer> MakeLrnLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<LrnLayer>(param, context);
}

}  // namespace poseidon::caffe
