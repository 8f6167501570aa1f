// SPDX-License-Identifier: Apache-2.0
// Layers whose learned weights multiply what comes in, and Im2col, which is a convolution here.
#include <algorithm>

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

std::int64_t ChannelsOf(const ExportedLayer& layer) {
  return AxisOf(layer.param.convolution_param().axis(), layer.bottom_shapes[0].axes());
}

Result<Window> WindowOf(const ExportedLayer& layer) {
  return ReadWindow(layer.param.convolution_param(), layer.bottom_shapes[0].axes() - ChannelsOf(layer) - 1);
}

// `learned`: a weight, and perhaps a bias.
Values Convolve(const std::string& op, const Window& window, const Values& learned, std::int64_t groups, const ExportedLayer& layer,
                OnnxGraph& graph) {
  const std::int64_t axis = ChannelsOf(layer);
  std::vector<std::int64_t> pads = window.pad;  // at the beginning of each axis, then at the end of each
  pads.insert(pads.end(), window.pad.begin(), window.pad.end());
  const Attributes attributes = {Attribute("kernel_shape", window.kernel), Attribute("strides", window.stride),
                                 Attribute("pads", pads), Attribute("dilations", window.dilation), Attribute("group", groups)};
  Values tops;
  for (std::size_t i = 0; i < layer.bottoms.size(); ++i) {
    const ExportShape& from = layer.bottom_shapes[i];
    const ExportShape& to = layer.top_shapes[i];
    const bool merges = axis != 1;
    Values inputs = {merges ? graph.Reshape(layer.bottoms[i], from, BatchFirst(from, axis)) : layer.bottoms[i]};
    inputs.insert(inputs.end(), learned.begin(), learned.end());
    const std::string result = graph.Node(op, inputs, attributes);
    tops.push_back(merges ? graph.Reshape(result, BatchFirst(to, axis), to) : result);
  }
  return tops;
}

Result<Values> ConvolveLearned(const std::string& op, std::int64_t groups, const ExportedLayer& layer, OnnxGraph& graph) {
  POSEIDON_ASSIGN_OR_RETURN(const Window window, WindowOf(layer));
  Values learned = {layer.Weights(0, graph)};
  if (layer.blobs.size() > 1) learned.push_back(layer.Weights(1, graph));
  return Convolve(op, window, learned, groups, layer, graph);
}

}  // namespace

// Weights are [outputs, inputs of a group, ...], transposed ones [inputs, outputs of a group, ...].
Result<Values> ConvertConvolution(const ExportedLayer& layer, OnnxGraph& graph) {
  const std::int64_t groups = At(layer.bottom_shapes[0].extents, ChannelsOf(layer)) / layer.blobs[0].shape[1];
  return ConvolveLearned("Conv", groups, layer, graph);
}

Result<Values> ConvertDeconvolution(const ExportedLayer& layer, OnnxGraph& graph) {
  const std::int64_t groups = layer.param.convolution_param().num_output() / layer.blobs[0].shape[1];
  return ConvolveLearned("ConvTranspose", groups, layer, graph);
}

// The windows that a convolution would see. ONNX has no operator for them, but a convolution of each channel by itself, with a
// weight for each place of the kernel that is 1 there and 0 elsewhere, copies them.
Result<Values> ConvertIm2col(const ExportedLayer& layer, OnnxGraph& graph) {
  POSEIDON_ASSIGN_OR_RETURN(const Window window, WindowOf(layer));
  const std::int64_t channels = At(layer.bottom_shapes[0].extents, ChannelsOf(layer));
  if (channels == kAnyBatch) graph.RequireFixedBatch();
  const std::int64_t places = ProductFrom({window.kernel, 0}, 0);
  std::vector<std::int64_t> shape = {std::max<std::int64_t>(channels, 1) * places, 1};
  shape.insert(shape.end(), window.kernel.begin(), window.kernel.end());
  std::vector<float> ones(static_cast<std::size_t>(shape[0] * places), 0.0F);
  for (std::int64_t i = 0; i < shape[0]; ++i) At(ones, i * places + i % places) = 1;
  return Convolve("Conv", window, {graph.Floats("places", shape, ones)}, channels, layer, graph);
}

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
