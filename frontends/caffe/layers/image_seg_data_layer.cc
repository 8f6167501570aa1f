// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>

#include "frontends/caffe/data/paired_images.h"
#include "frontends/caffe/layers/dense_batch_layer.h"

namespace poseidon::caffe {
namespace {

// Images and, as second top, a label for each of their pixels (DeepLab). What the crop does not fill has the mean, 0 once it is
// subtracted, and ignore_label. Crops are at random when training, else the centre; scale_factors and mirror are drawn in both phases.
class ImageSegDataLayer final : public DenseBatchLayer {
 public:
  using DenseBatchLayer::DenseBatchLayer;

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const ImageDataParameter& data = param().image_data_param();
    TransformationParameter transform = param().transform_param();
    POSEIDON_RETURN_IF_ERROR(CheckSteps(transform, Steps::kOfPairs));
    POSEIDON_RETURN_IF_ERROR(CheckRows(data.batch_size()));
    POSEIDON_RETURN_IF_ERROR(CheckBoth("new_height", data.new_height(), "new_width", data.new_width()));
    POSEIDON_RETURN_IF_ERROR(CheckBoth("crop_height", transform.crop_height(), "crop_width", transform.crop_width()));
    if (!data.has_source()) return InvalidArgument("has no source, expected a list of images and their labels");
    if (transform.has_mean_file()) return InvalidArgument("has mean_file in transform_param, expected mean_value: images have any size");
    if (transform.crop_size() > 0 && transform.crop_height() > 0) {
      return InvalidArgument("has crop_size and crop_height in transform_param, expected one of these forms");
    }
    if (data.ignore_label() < 0 || data.ignore_label() > 255) {
      return InvalidArgument("ignore_label is " + std::to_string(data.ignore_label()) + ", expected 0 to 255 as the labels");
    }
    PairedImagesOptions pairs{.list = data.source(),
                              .labels = LabelsOf(data.label_type()),
                              .root_folder = data.root_folder(),
                              .channels = data.is_color() ? Channels::kColour : Channels::kGrey,
                              .size = {data.new_height(), data.new_width()},
                              .crop = {transform.crop_height(), transform.crop_width()},
                              .centred = phase() != TRAIN,
                              .pads = true,
                              .padding = static_cast<std::uint8_t>(data.ignore_label()),
                              .mirror = transform.mirror()};
    if (transform.crop_size() > 0) pairs.crop = {transform.crop_size(), transform.crop_size()};
    for (const float scale : transform.scale_factors()) {
      if (!(scale > 0 && scale <= kLargestScale)) return InvalidArgument("scale_factors has " + std::to_string(scale) + ", expected above 0, at most 100");
      pairs.scales.push_back(scale);
    }
    for (const char* const done : {"mirror", "crop_size", "crop_height", "crop_width", "scale_factors"}) {
      transform.GetReflection()->ClearField(&transform, transform.GetDescriptor()->FindFieldByName(done));
    }
    return ReadPairs(std::move(pairs), data.shuffle(), transform, {.rows = data.batch_size(), .rand_skip = data.rand_skip()});
  }

 private:
  static constexpr float kLargestScale = 100;

  static PairLabels LabelsOf(ImageDataParameter::LabelType type) {
    if (type == ImageDataParameter::PIXEL) return PairLabels::kImage;
    return type == ImageDataParameter::IMAGE ? PairLabels::kNumber : PairLabels::kNone;
  }
};

}  // namespace

std::unique_ptr<Layer> MakeImageSegDataLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ImageSegDataLayer>(param, context);
}

}  // namespace poseidon::caffe
