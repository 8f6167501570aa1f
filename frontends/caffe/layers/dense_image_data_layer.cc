// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>

#include "frontends/caffe/data/paired_images.h"
#include "frontends/caffe/layers/batch_layer.h"

namespace poseidon::caffe {
namespace {

// Images and, as second top, a label for each of their pixels [rows, 1, height, width] (SegNet). Mirror and crop are the same for both
// and at random in both phases.
class DenseImageDataLayer final : public BatchLayer {
 public:
  using BatchLayer::BatchLayer;
  Arity arity() const override { return {0, 0, 2, 2}; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const DenseImageDataParameter& data = param().dense_image_data_param();
    POSEIDON_RETURN_IF_ERROR(CheckRows(data.batch_size()));
    POSEIDON_RETURN_IF_ERROR(CheckBoth("new_height", data.new_height(), "new_width", data.new_width()));
    POSEIDON_RETURN_IF_ERROR(CheckBoth("crop_height", data.crop_height(), "crop_width", data.crop_width()));
    if (!data.has_source()) return InvalidArgument("has no source, expected a list of images and their labels");
    if (param().transform_param().mirror() || param().transform_param().crop_size() > 0) {
      return InvalidArgument("has mirror or crop_size in transform_param, expected mirror, crop_height and crop_width in "
                             "dense_image_data_param: they move the labels too");
    }
    POSEIDON_ASSIGN_OR_RETURN(Transformer transformer, Transformer::Make(param().transform_param(), phase()));
    PairedImagesOptions pairs{.list = data.source(),
                              .root_folder = data.root_folder(),
                              .channels = data.is_color() ? Channels::kColour : Channels::kGrey,
                              .size = {data.new_height(), data.new_width()},
                              .crop = {data.crop_height(), data.crop_width()},
                              .mirror = data.mirror()};
    if (data.shuffle()) pairs.shuffle = Shuffle({});
    pairs.draw = [blocks = Blocks({})](std::uint64_t sample) { return blocks(sample, 0); };
    POSEIDON_ASSIGN_OR_RETURN(auto samples, OpenPairedImages(std::move(pairs), std::move(transformer)));
    return ReadFrom(std::move(samples), {.rows = data.batch_size(), .rand_skip = data.rand_skip()}, {});
  }

 private:
  static Status CheckBoth(const std::string& height, std::uint32_t one, const std::string& width, std::uint32_t other) {
    if ((one > 0) == (other > 0)) return OkStatus();
    return InvalidArgument("has " + height + " " + std::to_string(one) + " and " + width + " " + std::to_string(other) + ", expected both or none");
  }

  void ShapeTops(std::int64_t rows, const ImageShape& image, const Blobs& top) override {
    SetShape(top[0], {rows, image.channels - 1, image.height, image.width}, options());
    SetShape(top[1], {rows, 1, image.height, image.width}, options());
  }
  // The labels are the last channel.
  void FillTops(const Batch& batch, const Blobs& top) override {
    const std::int64_t channels = batch.images.size(1) - 1;
    top[0]->data.copy_(batch.images.narrow(1, 0, channels));
    top[1]->data.copy_(batch.images.narrow(1, channels, 1));
  }
};

}  // namespace

std::unique_ptr<Layer> MakeDenseImageDataLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<DenseImageDataLayer>(param, context);
}

}  // namespace poseidon::caffe
