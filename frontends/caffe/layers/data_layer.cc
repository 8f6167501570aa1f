// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "frontends/caffe/data/batch_source.h"
#include "frontends/caffe/data/source_part.h"
#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/net/random.h"

namespace poseidon::caffe {
namespace {

// Images and, with a second top, labels from a database. Which rows come is a function of the pass
// and of our share; crops and mirrors depend on the sample alone.
class DataLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {0, 0, 1, 2}; }
  bool differentiable() const override { return false; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const DataParameter& data = param().data_param();
    if (data.batch_size() == 0) return InvalidArgument("batch_size is 0, expected at least 1");
    rows_ = static_cast<std::int64_t>(data.batch_size());
    const TransformationParameter& transform = param().transform_param();
    if (transform.force_color() && transform.force_gray()) {
      return InvalidArgument("has both force_color and force_gray, expected one");
    }
    POSEIDON_ASSIGN_OR_RETURN(Transformer transformer, Transformer::Make(transform, phase()));
    BatchSource::Options options;
    options.database = data.backend() == DataParameter::LMDB ? Database::kLmdb : Database::kLevelDb;
    POSEIDON_ASSIGN_OR_RETURN(part_, PartOf(data.source(), data.shared_file_system(), context().share.rank, context().share.world));
    options.path = part_.path;
    options.rows = rows_;
    options.stride = static_cast<std::uint64_t>(rows_) * (part_.own ? 1 : static_cast<std::uint64_t>(context().share.world));
    options.ahead = std::max<std::size_t>(1, data.prefetch());
    options.dtype = context().dtype;
    options.channels = transform.force_color()  ? Channels::kColour
                       : transform.force_gray() ? Channels::kGrey
                                                : Channels::kAsStored;
    // Equal numbers are other samples in another worker's part.
    const RandomStream stream(context().seed, RandomPurpose::kTransform, unique_name() + part_.suffix,
                              phase() == TRAIN ? 0 : 1);
    // The same number on all workers: they share the records from there on.
    if (data.rand_skip() > 0) {
      const RandomStream skips(context().seed, RandomPurpose::kSkip, unique_name(), 0);
      skip_ = skips.Draw(0, 0)[0] % data.rand_skip();
    }
    options.draw = [stream](std::uint64_t sample) { return stream.Draw(sample, 0); };
    POSEIDON_ASSIGN_OR_RETURN(source_,
                              BatchSource::Open(std::move(options), std::move(transformer)));
    return OkStatus();
  }

  Status Reshape(const Blobs& /*bottom*/, const Blobs& top) override {
    const ImageShape& image = source_->image_shape();
    SetShape(top[0], {rows_, image.channels, image.height, image.width}, options());
    if (top.size() > 1) SetShape(top[1], {rows_}, options());
    return OkStatus();
  }

  // The tops become the batch that was read, no copy; what they were goes back to the reader.
  Status Forward(const Blobs& /*bottom*/, const Blobs& top) override {
    const auto rows = static_cast<std::uint64_t>(rows_);
    const std::uint64_t batch = context().pass->batch;
    const std::uint64_t first = part_.own          ? FirstSampleOfPart(batch, phase() == TRAIN, context().share, rows)
                                : phase() == TRAIN ? FirstTrainSample(batch, context().share, rows)
                                                   : FirstTestSample(batch, rows);
    POSEIDON_RETURN_IF_ERROR(source_->Take(skip_ + first, &batch_));
    first_ = skip_ + first;
    top[0]->data = batch_.images;
    if (top.size() > 1) top[1]->data = batch_.labels;
    return OkStatus();
  }

  std::string RecordAt(std::int64_t row) const override {
    return "record " + std::to_string((first_ + static_cast<std::uint64_t>(row)) % source_->records()) + " of " +
           part_.path + ", counted from 0 in the order of keys";
  }

 private:
  std::int64_t rows_ = 0;
  std::uint64_t first_ = 0;  // the sample of the batch's first row
  std::uint64_t skip_ = 0;  // records passed over at the beginning, below rand_skip
  SourcePart part_;
  std::unique_ptr<BatchSource> source_;
  Batch batch_;
};

}  // namespace

std::unique_ptr<Layer> MakeDataLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<DataLayer>(param, context);
}

}  // namespace poseidon::caffe
