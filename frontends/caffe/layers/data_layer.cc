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
    const TransformationParameter& transform = param().transform_param();
    POSEIDON_ASSIGN_OR_RETURN(const Opening opening, OpeningOf(param().data_param(), transform));
    POSEIDON_ASSIGN_OR_RETURN(auto samples, OpenDatabaseSamples(opening.database, opening.reading.part.path, opening.channels));
    return ReadFrom(std::move(samples), opening.reading, transform);
  }
};

}  // namespace

std::unique_ptr<Layer> MakeDataLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<DataLayer>(param, context);
}

}  // namespace poseidon::caffe
