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

}  // namespace

OnnxConverter FindOnnxConverter(const std::string& type) {
  for (const Entry& entry : kConverters) {
    if (entry.type == type) return entry.convert;
  }
  return nullptr;
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

}  // namespace poseidon::caffe
