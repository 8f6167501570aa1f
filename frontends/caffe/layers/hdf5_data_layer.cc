// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontends/caffe/data/batch_source.h"
#include "frontends/caffe/data/hdf5_list.h"
#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/net/random.h"

namespace poseidon::caffe {
namespace {

// As many tops as the files have datasets of their names. Which rows come is a function of the pass and of our share.
class Hdf5DataLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {0, 0, 1, Arity::kAny}; }
  bool computes_on_device() const override { return false; }
  bool reads_ahead() const override { return true; }
  bool differentiable() const override { return false; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const HDF5DataParameter& data = param().hdf5_data_param();
    if (param().has_transform_param()) return InvalidArgument("has transform_param, but it does not transform what it reads");
    if (data.batch_size() == 0) return InvalidArgument("batch_size is 0, expected at least 1");
    rows_ = static_cast<std::int64_t>(data.batch_size());
    Hdf5List::Options options;
    options.list = data.source();
    options.datasets.assign(param().top().begin(), param().top().end());
    if (data.shuffle()) {
      // The same for all workers: they share the epoch.
      options.shuffle = [seed = context().seed, name = unique_name(), test = phase() == TRAIN ? 0U : 1U](
                            std::uint64_t epoch, std::uint64_t list) -> EpochBits {
        const RandomStream stream(seed, RandomPurpose::kShuffle, name, 2 * epoch + test);
        return [stream, list](std::uint64_t number) { return stream.Draw(list, number)[0]; };
      };
    }
    POSEIDON_ASSIGN_OR_RETURN(list_, Hdf5List::Open(std::move(options)));
    return OkStatus();
  }

  Status Reshape(const Blobs& /*bottom*/, const Blobs& top) override {
    for (std::size_t i = 0; i < top.size(); ++i) {
      Shape shape = list_->row_shape(i);
      shape.insert(shape.begin(), rows_);
      SetShape(top[i], shape, options());
    }
    return OkStatus();
  }

  Status Forward(const Blobs& /*bottom*/, const Blobs& top) override {
    const auto rows = static_cast<std::uint64_t>(rows_);
    const std::uint64_t batch = context().pass->batch;
    first_ = phase() == TRAIN ? FirstTrainSample(batch, context().share, rows) : FirstTestSample(batch, rows);
    spare_.resize(top.size());
    std::vector<at::Tensor> tops;
    for (std::size_t i = 0; i < top.size(); ++i) {
      TakeUnseen(top[i], &spare_[i]);
      tops.push_back(top[i]->data);
    }
    return list_->Read(first_, tops);
  }

  std::string RecordAt(std::int64_t row) const override {
    return list_->NameOf(first_ + static_cast<std::uint64_t>(row));
  }

 private:
  // Somebody may still look at the last batch, such as NumPy. Then the one before that is written again. What feeds a device is in
  // memory that its copies reach.
  void TakeUnseen(Blob* top, at::Tensor* spare) const {
    const bool feeds = context().feeds_device;
    if (IsOurs(top->data) && (!feeds || top->data.is_pinned())) return;
    if (!spare->defined() || spare->sizes() != top->data.sizes() || !IsOurs(*spare)) {
      *spare = at::empty(top->data.sizes(), options().pinned_memory(feeds));
    }
    std::swap(top->data, *spare);
  }

  std::int64_t rows_ = 0;
  std::uint64_t first_ = 0;  // the sample of the batch's first row
  std::unique_ptr<Hdf5List> list_;
  std::vector<at::Tensor> spare_;  // the batch before, by top
};

}  // namespace

std::unique_ptr<Layer> MakeHdf5DataLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<Hdf5DataLayer>(param, context);
}

}  // namespace poseidon::caffe
