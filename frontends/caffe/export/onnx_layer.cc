// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/export/onnx_layer.h"

#include <string_view>

#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {

#define POSEIDON_ONNX(type, converter) Result<Values> converter(const ExportedLayer& layer, OnnxGraph& graph);
#include "frontends/caffe/export/onnx_converters.inc"
#undef POSEIDON_ONNX

namespace {

struct Entry {
  std::string_view type;
  OnnxConverter convert;
};

constexpr Entry kConverters[] = {
#define POSEIDON_ONNX(type, converter) {type, converter},
#include "frontends/caffe/export/onnx_converters.inc"
#undef POSEIDON_ONNX
};

struct Reason {
  std::string_view type, words;
};

// Of the layers that a net may hold when it is not trained. A model says the shape of each value before it runs, and runs no code but its
// own.
constexpr Reason kReasons[] = {
    {"BoxAnnotatorOHEM", ", which chooses samples to train with"},
    {"DetectionOutput", ", whose number of rows depends on what it finds"},
    {"Filter", ", whose number of rows depends on the numbers of its selector"},
    {"Python", ", which runs code that is not in the net"},
};

}  // namespace

OnnxConverter FindOnnxConverter(const std::string& type) {
  for (const Entry& entry : kConverters) {
    if (entry.type == type) return entry.convert;
  }
  return nullptr;
}

std::optional<std::string> WhyNotOnnx(const LayerParameter& layer) {
  const DropoutParameter& dropout = layer.dropout_param();
  if (layer.type() == "Dropout" && dropout.sample_weights_test() && dropout.dropout_ratio() > 0) {
    return " with sample_weights_test, which draws";
  }
  if (layer.type() == "Pooling" && layer.pooling_param().dilation_size() > 0) return " with dilation, which is not written";
  if (FindOnnxConverter(layer.type()) != nullptr) return std::nullopt;
  for (const Reason& reason : kReasons) {
    if (reason.type == layer.type()) return std::string(reason.words);
  }
  return "";
}

std::vector<std::int64_t> AxesFrom(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> axes;
  for (std::int64_t axis = first; axis < last; ++axis) axes.push_back(axis);
  return axes;
}

std::int64_t ProductFrom(const ExportShape& shape, std::int64_t axis) {
  std::int64_t product = 1;
  for (std::int64_t i = axis; i < shape.axes(); ++i) product *= At(shape.extents, i);
  return product;
}

bool KnowsPlanes(const ExportShape& shape, OnnxGraph& graph) {
  if (shape.extents[2] != kAnyBatch && shape.extents[3] != kAnyBatch) return true;
  graph.RequireFixedBatch();
  return false;
}

}  // namespace poseidon::caffe
