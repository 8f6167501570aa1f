// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_DENSE_BATCH_LAYER_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_DENSE_BATCH_LAYER_H_

#include <string>
#include <utility>

#include "frontends/caffe/data/paired_images.h"
#include "frontends/caffe/layers/batch_layer.h"

namespace poseidon::caffe {

// A layer that reads images and, as second top, a label for each of their pixels [rows, 1, height, width].
class DenseBatchLayer : public BatchLayer {
 public:
  using BatchLayer::BatchLayer;
  Arity arity() const override { return {0, 0, 2, 2}; }

 protected:
  static Status CheckBoth(const std::string& height, std::uint32_t one, const std::string& width, std::uint32_t other) {
    if ((one > 0) == (other > 0)) return OkStatus();
    return InvalidArgument("has " + height + " " + std::to_string(one) + " and " + width + " " + std::to_string(other) + ", expected both or none");
  }

  // In SetUp: reads ahead from `pairs`, drawn by this layer's numbers; `transform` neither crops nor mirrors.
  Status ReadPairs(PairedImagesOptions pairs, bool shuffle, const TransformationParameter& transform, const Reading& reading) {
    POSEIDON_ASSIGN_OR_RETURN(Transformer transformer, Transformer::Make(transform, phase()));
    if (shuffle) pairs.shuffle = Shuffle({});
    pairs.draw = [blocks = Blocks({})](std::uint64_t sample) { return blocks(sample, 0); };
    POSEIDON_ASSIGN_OR_RETURN(auto samples, OpenPairedImages(std::move(pairs), std::move(transformer)));
    return ReadFrom(std::move(samples), reading, {});
  }

 private:
  void ShapeTops(std::int64_t rows, const ImageShape& image, const Blobs& top) final {
    SetShape(top[0], {rows, image.channels - 1, image.height, image.width}, options());
    SetShape(top[1], {rows, 1, image.height, image.width}, options());
  }
  // The labels are the last channel.
  void FillTops(const Batch& batch, const Blobs& top) final {
    const std::int64_t channels = batch.images.size(1) - 1;
    top[0]->data.copy_(batch.images.narrow(1, 0, channels));
    top[1]->data.copy_(batch.images.narrow(1, channels, 1));
  }
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_DENSE_BATCH_LAYER_H_
