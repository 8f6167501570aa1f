// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/cat.h>

#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Spatial pyramid pooling: level i pools the image into 2^i x 2^i bins whatever its size, and the
// levels are laid one after the other in one vector per image.
class SppLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {}; }
  bool computes_on_device() const override { return param().spp_param().pool() != SPPParameter::STOCHASTIC; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    const std::uint32_t levels = param().spp_param().pyramid_height();
    if (levels < 1 || levels > 16) return InvalidArgument("needs a pyramid_height of 1 to 16");
    if (bottom[0]->data.dim() != 4) {
      return InvalidArgument("bottom has shape " + ShapeText(bottom[0]->data.sizes()) +
                             ", expected four axes");
    }
    pooled_.resize(levels);
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    pools_.clear();
    std::int64_t width = 0;
    for (std::size_t level = 0; level < pooled_.size(); ++level) {
      POSEIDON_ASSIGN_OR_RETURN(
          std::unique_ptr<Layer> pool,
          MakeLayer(PoolingOf(level, *bottom[0]), ContextOf(level)));
      const Blobs out = {&pooled_[level]};
      POSEIDON_RETURN_IF_ERROR(pool->SetUp(bottom, out));
      POSEIDON_RETURN_IF_ERROR(pool->Reshape(bottom, out));
      width += pooled_[level].data.flatten(1).size(1);
      pools_.push_back(std::move(pool));
    }
    // One level stays an image.
    SetShape(top[0],
             pooled_.size() == 1 ? pooled_[0].shape() : Shape{bottom[0]->data.size(0), width},
             options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    std::vector<at::Tensor> parts;
    for (std::size_t level = 0; level < pools_.size(); ++level) {
      POSEIDON_RETURN_IF_ERROR(pools_[level]->Forward(bottom, {&pooled_[level]}));
      parts.push_back(pooled_[level].data.flatten(1));
    }
    at::Tensor rows = top[0]->data.flatten(1);
    at::cat_out(rows, parts, 1);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (!propagate_down[0]) return OkStatus();
    const at::Tensor rows = top[0]->diff.flatten(1);
    at::Tensor sum;
    std::int64_t offset = 0;
    for (std::size_t level = 0; level < pools_.size(); ++level) {
      Blob& pooled = pooled_[level];
      const std::int64_t width = pooled.data.flatten(1).size(1);
      DiffOf(&pooled).copy_(rows.narrow(1, offset, width).view(pooled.data.sizes()));
      offset += width;
      Blob image{bottom[0]->data, {}};
      POSEIDON_RETURN_IF_ERROR(pools_[level]->Backward({&pooled}, {true}, {&image}));
      sum = level == 0 ? image.diff : sum.add_(image.diff);
    }
    bottom[0]->diff = sum;
    return OkStatus();
  }

 private:
  // Levels that draw do it each for itself.
  LayerContext ContextOf(std::size_t level) const {
    LayerContext own = context();
    own.unique_name = unique_name() + "/" + std::to_string(level);
    return own;
  }

  LayerParameter PoolingOf(std::size_t level, const Blob& image) const {
    LayerParameter pool;
    pool.set_name(name());
    pool.set_type("Pooling");
    auto* options = pool.mutable_pooling_param();
    const std::int64_t bins = std::int64_t{1} << level;
    const auto cover = [bins](std::int64_t extent) {
      return static_cast<std::uint32_t>((extent + bins - 1) / bins);
    };
    const auto pad = [bins, &cover](std::int64_t extent) {
      return static_cast<std::uint32_t>((cover(extent) * bins - extent + 1) / 2);
    };
    const std::int64_t height = image.data.size(2);
    const std::int64_t width = image.data.size(3);
    options->set_kernel_h(cover(height));
    options->set_kernel_w(cover(width));
    options->set_stride_h(cover(height));
    options->set_stride_w(cover(width));
    options->set_pad_h(pad(height));
    options->set_pad_w(pad(width));
    switch (param().spp_param().pool()) {
      case SPPParameter::MAX: options->set_pool(PoolingParameter::MAX); break;
      case SPPParameter::AVE: options->set_pool(PoolingParameter::AVE); break;
      case SPPParameter::STOCHASTIC: options->set_pool(PoolingParameter::STOCHASTIC); break;
    }
    return pool;
  }

  std::vector<std::unique_ptr<Layer>> pools_;
  std::vector<Blob> pooled_;
};

}  // namespace

std::unique_ptr<Layer> MakeSppLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<SppLayer>(param, context);
}

}  // namespace poseidon::caffe
