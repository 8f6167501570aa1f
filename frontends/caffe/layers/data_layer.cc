// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "frontends/caffe/data/database_samples.h"
#include "frontends/caffe/layers/batch_layer.h"

namespace poseidon::caffe {
namespace {

// Images and labels from a database.
class DataLayer final : public BatchLayer {
 public:
  using BatchLayer::BatchLayer;

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const DataParameter& data = param().data_param();
    POSEIDON_RETURN_IF_ERROR(CheckRows(data.batch_size()));
    const TransformationParameter& transform = param().transform_param();
    if (transform.force_color() && transform.force_gray()) {
      return InvalidArgument("has both force_color and force_gray, expected one");
    }
    const Channels channels = transform.force_color()  ? Channels::kColour
                              : transform.force_gray() ? Channels::kGrey
                                                       : Channels::kAsStored;
    const Database database = data.backend() == DataParameter::LMDB ? Database::kLmdb : Database::kLevelDb;
    POSEIDON_ASSIGN_OR_RETURN(SourcePart part,
                              PartOf(data.source(), data.shared_file_system(), context().share.rank, context().share.world));
    POSEIDON_ASSIGN_OR_RETURN(auto samples, OpenDatabaseSamples(database, part.path, channels));
    return ReadFrom(std::move(samples),
                    {.rows = data.batch_size(), .rand_skip = data.rand_skip(), .ahead = data.prefetch(), .part = std::move(part)},
                    transform);
  }
};

}  // namespace

std::unique_ptr<Layer> MakeDataLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<DataLayer>(param, context);
}

}  // namespace poseidon::caffe
