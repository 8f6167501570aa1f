// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "frontends/caffe/layers/dense_batch_layer.h"

namespace poseidon::caffe {
namespace {

// Images and a label for each of their pixels (SegNet). Mirror and crop are the same for both and at random in both phases.
class DenseImageDataLayer final : public DenseBatchLayer {
 public:
  using DenseBatchLayer::DenseBatchLayer;

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const DenseImageDataParameter& data = param().dense_image_data_param();
    POSEIDON_RETURN_IF_ERROR(CheckRows(data.batch_size()));
    POSEIDON_RETURN_IF_ERROR(CheckBoth("new_height", data.new_height(), "new_width", data.new_width()));
    POSEIDON_RETURN_IF_ERROR(CheckBoth("crop_height", data.crop_height(), "crop_width", data.crop_width()));
    if (!data.has_source()) return InvalidArgument("has no source, expected a list of images and their labels");
    POSEIDON_RETURN_IF_ERROR(CheckSteps(param().transform_param(), Steps::kOfWindows));
    if (param().transform_param().mirror() || param().transform_param().crop_size() > 0) {
      return InvalidArgument("has mirror or crop_size in transform_param, expected mirror, crop_height and crop_width in "
                             "dense_image_data_param: they move the labels too");
    }
    PairedImagesOptions pairs{.list = data.source(),
                              .root_folder = data.root_folder(),
                              .channels = data.is_color() ? Channels::kColour : Channels::kGrey,
                              .size = {data.new_height(), data.new_width()},
                              .crop = {data.crop_height(), data.crop_width()},
                              .mirror = data.mirror()};
    return ReadPairs(std::move(pairs), data.shuffle(), param().transform_param(), {.rows = data.batch_size(), .rand_skip = data.rand_skip()});
  }
};

}  // namespace

std::unique_ptr<Layer> MakeDenseImageDataLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<DenseImageDataLayer>(param, context);
}

}  // namespace poseidon::caffe
