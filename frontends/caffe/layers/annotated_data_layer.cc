// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/from_blob.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontends/caffe/data/annotated_samples.h"
#include "frontends/caffe/layers/batch_layer.h"

namespace poseidon::caffe {
namespace {

constexpr std::int64_t kNumbers = 8;  // of a box: row of the batch, label, instance, x1, y1, x2, y2, difficult

// Images from a database and, as second top, the boxes of all of them [1, 1, boxes, 8] (SSD). A batch without any has one of -1. Records
// without boxes have a label each, [rows, 1, 1, 1].
class AnnotatedDataLayer final : public BatchLayer {
 public:
  using BatchLayer::BatchLayer;

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    POSEIDON_ASSIGN_OR_RETURN(Opening opening, OpeningOf(param().data_param(), param().transform_param()));
    const AnnotatedDataParameter& annotated = param().annotated_data_param();
    POSEIDON_ASSIGN_OR_RETURN(ObjectTransform transform, ObjectTransform::Make(param().transform_param(), annotated, phase()));
    opening.reading.any_size = transform.any_size();
    if (opening.reading.any_size && opening.reading.rows != 1) {
      return InvalidArgument("has resize_mode FIT_SMALL_SIZE with batch_size " + std::to_string(opening.reading.rows) +
                             ", expected 1, or a crop_size: images of a batch have one size");
    }
    POSEIDON_ASSIGN_OR_RETURN(AnnotatedSamples opened, OpenAnnotatedSamples({.database = opening.database,
                                                                             .path = opening.reading.part.path,
                                                                             .channels = opening.channels,
                                                                             .boxes = annotated.has_anno_type(),
                                                                             .draw = Blocks(opening.reading.part.suffix)},
                                                                            std::move(transform)));
    boxes_ = opened.boxes;
    return ReadFrom(std::move(opened.samples), opening.reading, {});
  }

 private:
  void ShapeTops(std::int64_t rows, const ImageShape& image, const Blobs& top) override {
    SetShape(top[0], {rows, image.channels, image.height, image.width}, options());
    if (top.size() > 1) SetShape(top[1], boxes_ ? Shape{1, 1, 1, kNumbers} : Shape{rows, 1, 1, 1}, options());
  }

  void FillTops(const Batch& batch, const Blobs& top) override {
    top[0]->data = batch.images;
    if (top.size() < 2) return;
    if (!boxes_) {
      top[1]->data = batch.labels.view({-1, 1, 1, 1});
      return;
    }
    std::vector<double> numbers;
    for (std::size_t row = 0; row < batch.boxes.size(); ++row) {
      for (const LabelledBox& object : batch.boxes[row]) {
        numbers.insert(numbers.end(), {static_cast<double>(row), static_cast<double>(object.label), static_cast<double>(object.instance), object.box.x1,
                                       object.box.y1, object.box.x2, object.box.y2, object.difficult ? 1.0 : 0.0});
      }
    }
    if (numbers.empty()) numbers.assign(kNumbers, -1);
    SetShape(top[1], {1, 1, static_cast<std::int64_t>(numbers.size()) / kNumbers, kNumbers}, options());
    top[1]->data.copy_(at::from_blob(numbers.data(), top[1]->data.sizes(), at::kDouble));
  }

  bool boxes_ = false;
};

}  // namespace

std::unique_ptr<Layer> MakeAnnotatedDataLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<AnnotatedDataLayer>(param, context);
}

}  // namespace poseidon::caffe
