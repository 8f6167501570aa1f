// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>

#include <cmath>

#include "frontends/caffe/layers/neuron_layer.h"
#include "frontends/caffe/net/random.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

constexpr std::int64_t kGrain = 4096;  // elements worth a thread's while

// In training, elements are dropped with probability dropout_ratio and the others scaled by
// 1 / (1 - ratio); otherwise nothing happens. Fields of forks: without scale_train all are scaled by 1 - ratio when testing
// instead (Fast R-CNN), with sample_weights_test testing drops as training does (Bayesian SegNet). Whether element j of a row is dropped depends on the
// seed, the batch, the row of the global batch, the layer's name and j.
class DropoutLayer final : public NeuronLayer {
 public:
  using NeuronLayer::NeuronLayer;

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    ratio_ = static_cast<double>(param().dropout_param().dropout_ratio());
    if (ratio_ < 0 || ratio_ >= 1) {
      return InvalidArgument("dropout_ratio is " + std::to_string(ratio_) +
                             ", expected 0 <= ratio < 1");
    }
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    if (drops()) {
      DrawMask(bottom[0]->data);
      at::mul_out(top[0]->data, bottom[0]->data, mask_);
    } else if (!scales_in_training()) {
      at::mul_out(top[0]->data, bottom[0]->data, at::Scalar(1 - ratio_));
    } else if (top[0] != bottom[0]) {
      top[0]->data.copy_(bottom[0]->data);
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    at::Tensor& diff = DiffOf(bottom[0]);
    if (drops()) {
      at::mul_out(diff, top[0]->diff, mask_);
    } else if (!scales_in_training()) {
      at::mul_out(diff, top[0]->diff, at::Scalar(1 - ratio_));
    } else if (top[0] != bottom[0]) {
      diff.copy_(top[0]->diff);
    }
    return OkStatus();
  }

 private:
  bool drops() const { return ratio_ > 0 && (phase() == TRAIN || param().dropout_param().sample_weights_test()); }
  bool scales_in_training() const { return param().dropout_param().scale_train(); }

  void DrawMask(const at::Tensor& like) {
    if (!mask_.defined() || mask_.sizes() != like.sizes()) mask_ = at::empty_like(like);
    if (context().placement.on_host()) return DrawInto(mask_);
    DrawInto(upload_.Memory(mask_));  // the same numbers wherever the net is
    upload_.Copy(mask_);
  }

  void DrawInto(const at::Tensor& mask) const {
    if (mask.scalar_type() == at::kDouble) {
      Draw(mask.data_ptr<double>());
    } else {
      Draw(mask.data_ptr<float>());
    }
  }

  template <typename T>
  void Draw(T* mask) const {
    const std::int64_t rows = mask_.dim() > 0 ? mask_.size(0) : 1;
    const std::int64_t width = rows > 0 ? mask_.numel() / rows : 0;
    const RandomStream stream(context().seed, RandomPurpose::kDropout, unique_name(),
                              context().pass->batch);
    const std::int64_t first_row = context().share.rank * rows;
    const T kept = scales_in_training() ? static_cast<T>(1 / (1 - ratio_)) : T{1};
    // 32 random bits below the threshold drop an element.
    const auto threshold = static_cast<std::uint64_t>(std::ldexp(ratio_, 32));
    const std::int64_t blocks = (width + 3) / 4;
    at::parallel_for(0, rows * blocks, kGrain / 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = i / blocks;
        const std::int64_t block = i % blocks;
        const PhiloxCounter words = stream.Draw(static_cast<std::uint64_t>(first_row + row),
                                                static_cast<std::uint64_t>(block));
        T* out = mask + row * width + block * 4;
        const std::int64_t count = std::min<std::int64_t>(4, width - block * 4);
        for (std::int64_t j = 0; j < count; ++j) {
          out[j] = At(words, j) < threshold ? T{0} : kept;
        }
      }
    });
  }

  double ratio_ = 0.5;
  at::Tensor mask_;
  Upload upload_{context().placement};
};

}  // namespace

std::unique_ptr<Layer> MakeDropoutLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<DropoutLayer>(param, context);
}

}  // namespace poseidon::caffe
