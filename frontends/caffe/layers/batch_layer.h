// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_BATCH_LAYER_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_BATCH_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "frontends/caffe/data/batch_source.h"
#include "frontends/caffe/data/epoch_order.h"
#include "frontends/caffe/data/record_source.h"
#include "frontends/caffe/data/source_part.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {

// A layer that reads images and, with a second top, labels from a source of samples. Which rows come is a function of the pass
// and of our share; crops and mirrors depend on the sample alone.
class BatchLayer : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {0, 0, 1, 2}; }
  bool computes_on_device() const override { return false; }
  bool reads_ahead() const override { return true; }
  bool differentiable() const override { return false; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override;
  Status Forward(const Blobs& bottom, const Blobs& top) override;
  std::string RecordAt(std::int64_t row) const override;

 protected:
  // What the layers' parameters have in common.
  struct Reading {
    std::uint32_t rows = 0;       // batch_size
    std::uint32_t rand_skip = 0;  // samples passed over at the beginning are fewer
    std::size_t ahead = 4;        // batches read ahead; Caffe's default
    SourcePart part = {};         // what is opened, if not the source that all workers share
    bool any_size = false;        // of a batch of one row
  };
  // In SetUp, before the source is opened.
  Status CheckRows(std::uint32_t rows) const;
  // A layer's data_param, and how its transform_param decodes records.
  struct Opening {
    Database database;
    Channels channels;
    Reading reading;
  };
  Result<Opening> OpeningOf(const DataParameter& data, const TransformationParameter& transform) const;
  // In SetUp: reads ahead from `samples`, transformed by transform_param.
  Status ReadFrom(std::unique_ptr<SampleSource> samples, const Reading& reading, const TransformationParameter& transform);
  // What a sample of a source that transforms by itself is drawn from, block by block. `suffix` is that of a worker's own part.
  SampleBlocks Blocks(const std::string& suffix) const;
  // How a list of files is shuffled. Nothing of it depends on the worker where they share a list: all shuffle alike, and each takes
  // its rows. `suffix` is that of a worker's own part.
  EpochDraw Shuffle(const std::string& suffix) const;

 private:
  // The tops' shapes, for `rows` images of that shape.
  virtual void ShapeTops(std::int64_t rows, const ImageShape& image, const Blobs& top);
  // The tops become the batch that was read.
  virtual void FillTops(const Batch& batch, const Blobs& top);
  std::uint64_t FirstSample(std::uint64_t batch) const;

  std::int64_t rows_ = 0;
  bool own_part_ = false;  // no other worker reads this source
  std::uint64_t skip_ = 0;
  std::uint64_t first_ = 0;  // the sample of the batch's first row
  std::unique_ptr<BatchSource> source_;
  Batch batch_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_BATCH_LAYER_H_
