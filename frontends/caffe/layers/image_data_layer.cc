// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>

#include "frontends/caffe/data/listed_images.h"
#include "frontends/caffe/layers/batch_layer.h"

namespace poseidon::caffe {
namespace {

// Images and labels from the files that a list names.
class ImageDataLayer final : public BatchLayer {
 public:
  using BatchLayer::BatchLayer;

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const ImageDataParameter& data = param().image_data_param();
    POSEIDON_RETURN_IF_ERROR(CheckRows(data.batch_size()));
    if ((data.new_height() > 0) != (data.new_width() > 0)) {
      return InvalidArgument("has new_height " + std::to_string(data.new_height()) + " and new_width " +
                             std::to_string(data.new_width()) + ", expected both or none");
    }
    if (!data.has_source()) return InvalidArgument("has no source, expected an image list");
    if (data.has_label_type() || data.has_ignore_label()) {
      return InvalidArgument("has label_type or ignore_label, expected it in a layer of type ImageSegData alone");
    }
    POSEIDON_ASSIGN_OR_RETURN(SourcePart part,
                              PartOf(data.source(), data.shared_file_system(), context().share.rank, context().share.world));
    ListedImagesOptions listed{.list = part.path,
                               .root_folder = data.root_folder(),
                               .channels = data.is_color() ? Channels::kColour : Channels::kGrey,
                               .size = {data.new_height(), data.new_width()}};
    if (data.shuffle()) listed.shuffle = Shuffle(part.suffix);
    POSEIDON_ASSIGN_OR_RETURN(auto samples, OpenListedImages(std::move(listed)));
    return ReadFrom(std::move(samples), {.rows = data.batch_size(), .rand_skip = data.rand_skip(), .part = std::move(part)},
                    param().transform_param());
  }
};

}  // namespace

std::unique_ptr<Layer> MakeImageDataLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<ImageDataLayer>(param, context);
}

}  // namespace poseidon::caffe
