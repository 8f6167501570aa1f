// SPDX-License-Identifier: Apache-2.0
// Layers whose learned weights multiply what comes in.
#include "frontends/caffe/export/onnx_layer.h"
#include "frontends/caffe/layers/window.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// What is before the channels counts as batch: ONNX knows one such axis.
ExportShape BatchFirst(const ExportShape& shape, std::int64_t channels) {
  ExportShape merged{{1}, 0};
  for (std::int64_t axis = 0; axis < shape.axes(); ++axis) {
    const std::int64_t extent = At(shape.extents, axis);
    if (axis >= channels) {
      merged.extents.push_back(extent);
    } else if (extent == kAnyBatch || merged.extents[0] == kAnyBatch) {
      merged.extents[0] = kAnyBatch;
    } else {
      merged.extents[0] *= extent;
    }
  }
  return merged;
}

Result<Values> Convolve(const std::string& op, const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.convolution_param();
  const std::int64_t axis = AxisOf(options.axis(), layer.bottom_shapes[0].axes());
  const std::int64_t spatial = layer.bottom_shapes[0].axes() - axis - 1;
  POSEIDON_ASSIGN_OR_RETURN(const Window window, ReadWindow(options, spatial));
  std::vector<std::int64_t> pads = window.pad;  // at the beginning of each axis, then at the end of each
  pads.insert(pads.end(), window.pad.begin(), window.pad.end());
  // Weights are [outputs, inputs of a group, ...], transposed ones [inputs, outputs of a group, ...].
  const bool transposed = op == "ConvTranspose";
  const std::vector<std::int64_t>& weight = layer.blobs[0].shape;
  const std::int64_t groups = transposed ? options.num_output() / weight[1] : At(layer.bottom_shapes[0].extents, axis) / weight[1];
  const Attributes attributes = {Attribute("kernel_shape", window.kernel), Attribute("strides", window.stride),
                                 Attribute("pads", pads), Attribute("dilations", window.dilation), Attribute("group", groups)};
  Values tops;
  for (std::size_t i = 0; i < layer.bottoms.size(); ++i) {
    const ExportShape& from = layer.bottom_shapes[i];
    const ExportShape& to = layer.top_shapes[i];
    const bool merges = axis != 1;
    Values inputs = {merges ? graph.Reshape(layer.bottoms[i], from, BatchFirst(from, axis)) : layer.bottoms[i],
                     layer.Weights(0, graph)};
    if (layer.blobs.size() > 1) inputs.push_back(layer.Weights(1, graph));
    const std::string result = graph.Node(op, inputs, attributes);
    tops.push_back(merges ? graph.Reshape(result, BatchFirst(to, axis), to) : result);
  }
  return tops;
}

}  // namespace

Result<Values> ConvertConvolution(const ExportedLayer& layer, OnnxGraph& graph) { return Convolve("Conv", layer, graph); }
Result<Values> ConvertDeconvolution(const ExportedLayer& layer, OnnxGraph& graph) { return Convolve("ConvTranspose", layer, graph); }

Result<Values> ConvertInnerProduct(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.inner_product_param();
  const std::int64_t axes = layer.bottom_shapes[0].axes();
  const std::int64_t axis = AxisOf(options.axis(), axes);
  const bool is_matrix = axes == 2 && axis == 1;
  Values inputs = {is_matrix ? layer.bottoms[0] : graph.Node("Flatten", layer.bottoms, {Attribute("axis", axis)}),
                   layer.Weights(0, graph)};
  if (layer.blobs.size() > 1) inputs.push_back(layer.Weights(1, graph));
  const std::int64_t transposes = options.transpose() ? 0 : 1;  // the weights are [outputs, inputs] mostly
  const std::string rows = graph.Node("Gemm", inputs, {Attribute("transB", transposes)});
  if (axis == 1) return Values{rows};
  return Values{graph.Node("Reshape", {rows, graph.Ints("shape", layer.top_shapes[0].extents)})};
}

Result<Values> ConvertEmbed(const ExportedLayer& layer, OnnxGraph& graph) {
  const std::string rows = graph.Node("Gather", {layer.Weights(0, graph), graph.ToInt(layer.bottoms[0])});
  if (layer.blobs.size() == 1) return Values{rows};
  return Values{graph.Node("Add", {rows, layer.Weights(1, graph)})};
}

}  // namespace poseidon::caffe
