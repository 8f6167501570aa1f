// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/layers/memory_data_layer.h"

#include <memory>
#include <string>
#include <utility>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Batches of arrays that a program has given. As in Caffe, the pass number does not matter: every pass takes the next.
class MemoryDataLayer final : public Layer, public MemoryData {
 public:
  using Layer::Layer;
  Arity arity() const override { return {0, 0, 2, 2}; }
  bool computes_on_device() const override { return false; }
  bool differentiable() const override { return false; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const MemoryDataParameter& memory = param().memory_data_param();
    row_ = {memory.batch_size(), memory.channels(), memory.height(), memory.width()};
    if (memory.dim_size() > 0) {
      if (memory.has_batch_size() || memory.has_channels() || memory.has_height() || memory.has_width()) {
        return InvalidArgument("has dim and batch_size, channels, height or width in memory_data_param, expected one of these forms");
      }
      row_.assign(memory.dim().begin(), memory.dim().end());
      if (CountOf(row_) == 0) return InvalidArgument("has a dim of 0 in memory_data_param");
    } else if (CountOf(row_) == 0) {
      return InvalidArgument("batch_size, channels, height and width must be given and above 0 in memory_data_param");
    }
    return OkStatus();
  }

  Status Reshape(const Blobs& /*bottom*/, const Blobs& top) override {
    SetShape(top[0], row_, options());
    SetShape(top[1], {row_[0]}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& /*bottom*/, const Blobs& top) override {
    if (!data_.defined()) {
      return FailedPrecondition("has no data yet, expected a program that gives it some: set_input_arrays of poseidon.caffe");
    }
    top[0]->data = data_.narrow(0, next_, row_[0]);
    top[1]->data = labels_.narrow(0, next_, row_[0]);
    next_ = (next_ + row_[0]) % data_.size(0);
    return OkStatus();
  }

  Status SetArrays(at::Tensor data, at::Tensor labels) override {
    Shape expected = row_;
    if (data.dim() == static_cast<std::int64_t>(row_.size())) expected[0] = data.size(0);
    if (data.sizes() != at::IntArrayRef(expected) || data.size(0) == 0) {
      return InvalidArgument("data of shape " + ShapeText(data.sizes()) + ", expected Nx" + ShapeText(at::IntArrayRef(row_).slice(1)));
    }
    if (labels.sizes() != at::IntArrayRef({data.size(0)})) {
      return InvalidArgument("labels of shape " + ShapeText(labels.sizes()) + " for " + std::to_string(data.size(0)) + " rows of data");
    }
    if (data.size(0) % row_[0] != 0) {
      return InvalidArgument(std::to_string(data.size(0)) + " rows, expected a multiple of batch_size " + std::to_string(row_[0]));
    }
    data_ = std::move(data);
    labels_ = std::move(labels);
    next_ = 0;
    return OkStatus();
  }

 private:
  Shape row_;  // of a batch
  at::Tensor data_;
  at::Tensor labels_;
  std::int64_t next_ = 0;
};

}  // namespace

std::unique_ptr<Layer> MakeMemoryDataLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<MemoryDataLayer>(param, context);
}

}  // namespace poseidon::caffe
