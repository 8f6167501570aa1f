// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/proto/hdf5_rows.h"

namespace poseidon::caffe {
namespace {

// Writes its bottoms, batch after batch, as the datasets "data" and "label", each with four axes or more as Caffe's blobs
// have. The file is made by the first pass. Worker 0 writes `file_name`, worker N `file_name.N`: each has the rows
// that it read, and no two write to one file.
class Hdf5OutputLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 0, 0}; }
  bool computes_on_device() const override { return false; }
  bool AllowForceBackward(int /*bottom*/) const override { return false; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    path_ = param().hdf5_output_param().file_name();
    if (path_.empty()) return InvalidArgument("needs a file_name");
    if (context().share.rank > 0) path_ += "." + std::to_string(context().share.rank);
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& /*top*/) override {
    const bool axes = bottom[0]->data.dim() > 0 && bottom[1]->data.dim() > 0;
    if (axes && bottom[0]->data.size(0) == bottom[1]->data.size(0)) return OkStatus();
    return InvalidArgument("has bottoms of shape " + ShapeText(bottom[0]->data.sizes()) + " and " +
                           ShapeText(bottom[1]->data.sizes()) + ", expected equally many rows");
  }

  Status Forward(const Blobs& bottom, const Blobs& /*top*/) override {
    if (!writer_) {
      POSEIDON_ASSIGN_OR_RETURN(writer_, Hdf5RowWriter::Create(path_));
    }
    POSEIDON_RETURN_IF_ERROR(Append("data", bottom[0]->data));
    POSEIDON_RETURN_IF_ERROR(Append("label", bottom[1]->data));
    return writer_->Flush();
  }

  Status Backward(const Blobs& /*top*/, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    for (std::size_t i = 0; i < bottom.size(); ++i) {
      if (propagate_down[i]) DiffOf(bottom[i]).zero_();
    }
    return OkStatus();
  }

 private:
  Status Append(const char* name, const at::Tensor& rows) {
    Shape shape = rows.sizes().vec();
    shape.resize(std::max<std::size_t>(4, shape.size()), 1);
    return rows.scalar_type() == at::kDouble ? writer_->Append(name, shape, rows.const_data_ptr<double>())
                                             : writer_->Append(name, shape, rows.const_data_ptr<float>());
  }

  std::string path_;
  std::unique_ptr<Hdf5RowWriter> writer_;
};

}  // namespace

std::unique_ptr<Layer> MakeHdf5OutputLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<Hdf5OutputLayer>(param, context);
}

}  // namespace poseidon::caffe
