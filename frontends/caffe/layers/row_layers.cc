// SPDX-License-Identifier: Apache-2.0
// Layers that pick rows of a batch: BatchReindex by index, Filter by a selector.
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>

#include "frontends/caffe/layers/labels.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Row i of the top is row index[i] of the first bottom; the second bottom holds the indices.
class BatchReindexLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 1}; }
  bool AllowForceBackward(int bottom) const override { return bottom == 0; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    if (bottom[0]->data.dim() == 0 || bottom[1]->data.dim() != 1) {
      return InvalidArgument("has indices of shape " + ShapeText(bottom[1]->data.sizes()) +
                             ", expected one axis");
    }
    Shape shape = bottom[0]->shape();
    shape[0] = bottom[1]->data.size(0);
    SetShape(top[0], shape, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const ClassView view = {
        .axis = 1, .outer = bottom[1]->count(), .classes = bottom[0]->data.size(0), .inner = 1};
    POSEIDON_ASSIGN_OR_RETURN(const Labels read, ReadLabels(bottom[1]->data, view, std::nullopt, /*bad_row=*/nullptr));
    index_ = read.index.view({-1});
    at::index_select_out(top[0]->data, bottom[0]->data, 0, index_);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (propagate_down[1]) return InvalidArgument("cannot propagate to indices (bottom 1)");
    if (propagate_down[0]) DiffOf(bottom[0]).zero_().index_add_(0, index_, top[0]->diff);
    return OkStatus();
  }

 private:
  at::Tensor index_;
};

// Passes the rows whose selector, the last bottom, is not 0. How many that are is known in the
// forward pass only; before it the tops have all rows.
class FilterLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, Arity::kAny, 1, Arity::kAny}; }
  bool AllowForceBackward(int bottom) const override { return bottom + 1 < bottoms_; }

  Status SetUp(const Blobs& bottom, const Blobs& top) override {
    bottoms_ = static_cast<int>(bottom.size());
    if (top.size() + 1 != bottom.size()) {
      return InvalidArgument("needs as many tops as bottoms without the selector");
    }
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const Blob& selector = *bottom.back();
    for (std::size_t i = 0; i < top.size(); ++i) {
      if (bottom[i]->data.dim() == 0 || bottom[i]->data.size(0) != selector.count()) {
        return InvalidArgument("bottom " + std::to_string(i) + " has shape " +
                               ShapeText(bottom[i]->data.sizes()) + ", the selector has " +
                               std::to_string(selector.count()) + " rows");
      }
      SetShape(top[i], bottom[i]->shape(), options());
    }
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    index_ = at::nonzero(bottom.back()->data.view({-1})).view({-1});
    for (std::size_t i = 0; i < top.size(); ++i) {
      top[i]->data = at::index_select(bottom[i]->data, 0, index_);
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (propagate_down.back()) return InvalidArgument("cannot propagate to the selector");
    for (std::size_t i = 0; i < top.size(); ++i) {
      if (propagate_down[i]) DiffOf(bottom[i]).zero_().index_copy_(0, index_, top[i]->diff);
    }
    return OkStatus();
  }

 private:
  int bottoms_ = 0;
  at::Tensor index_;
};

}  // namespace

std::unique_ptr<Layer> MakeBatchReindexLayer(const LayerParameter& param,
                                             const LayerContext& context) {
  return std::make_unique<BatchReindexLayer>(param, context);
}

std::unique_ptr<Layer> MakeFilterLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<FilterLayer>(param, context);
}

}  // namespace poseidon::caffe
