// SPDX-License-Identifier: Apache-2.0
// Layers that move numbers and compute none.
#include <algorithm>
#include <utility>

#include "frontends/caffe/export/onnx_layer.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {

Result<Values> ConvertConcat(const ExportedLayer& layer, OnnxGraph& graph) {
  if (layer.bottoms.size() == 1) return layer.bottoms;
  const auto& options = layer.param.concat_param();
  const std::int64_t axis = options.has_concat_dim() ? static_cast<std::int64_t>(options.concat_dim())
                                                     : AxisOf(options.axis(), layer.bottom_shapes[0].axes());
  return Values{graph.Node("Concat", layer.bottoms, {Attribute("axis", axis)})};
}

Result<Values> ConvertSlice(const ExportedLayer& layer, OnnxGraph& graph) {
  if (layer.top_shapes.size() == 1) return layer.bottoms;
  const auto& options = layer.param.slice_param();
  const std::int64_t axis = options.has_slice_dim() ? static_cast<std::int64_t>(options.slice_dim())
                                                    : AxisOf(options.axis(), layer.bottom_shapes[0].axes());
  std::vector<std::int64_t> parts;
  for (const ExportShape& shape : layer.top_shapes) parts.push_back(At(shape.extents, axis));
  return graph.Nodes("Split", {layer.bottoms[0], graph.Ints("split", parts)}, parts.size(), {Attribute("axis", axis)});
}

// Also Flatten: the net knows the shape of the top.
Result<Values> ConvertReshape(const ExportedLayer& layer, OnnxGraph& graph) {
  return Values{graph.Reshape(layer.bottoms[0], layer.bottom_shapes[0], layer.top_shapes[0])};
}

// To the extents of the second bottom, of which only the shape counts.
Result<Values> ConvertCrop(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.crop_param();
  const ExportShape& from = layer.bottom_shapes[0];
  const ExportShape& to = layer.top_shapes[0];
  const std::int64_t first = AxisOf(options.axis(), from.axes());
  std::vector<std::int64_t> axes;
  std::vector<std::int64_t> starts;
  std::vector<std::int64_t> ends;
  for (std::int64_t axis = first; axis < from.axes(); ++axis) {
    std::int64_t start = 0;
    if (options.offset_size() > 0) start = options.offset(options.offset_size() == 1 ? 0 : static_cast<int>(axis - first));
    const bool any = At(from.extents, axis) == kAnyBatch || At(to.extents, axis) == kAnyBatch;
    if (any && (start != 0 || from.per_image != to.per_image)) graph.RequireFixedBatch();
    if (any || At(from.extents, axis) == At(to.extents, axis)) continue;
    axes.push_back(axis);
    starts.push_back(start);
    ends.push_back(start + At(to.extents, axis));
  }
  if (axes.empty()) return Values{layer.bottoms[0]};
  return Values{graph.Node("Slice", {layer.bottoms[0], graph.Ints("starts", starts), graph.Ints("ends", ends), graph.Ints("axes", axes)})};
}

Result<Values> ConvertTile(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.tile_param();
  std::vector<std::int64_t> repeats(layer.bottom_shapes[0].extents.size(), 1);
  At(repeats, AxisOf(options.axis(), layer.bottom_shapes[0].axes())) = options.tiles();
  return Values{graph.Node("Tile", {layer.bottoms[0], graph.Ints("repeats", repeats)})};
}

// Axis i of the top is axis order[i] of the bottom; axes that are not named follow in their order.
Result<Values> ConvertPermute(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.permute_param();
  std::vector<std::int64_t> order(options.order().begin(), options.order().end());
  for (std::int64_t axis = 0; axis < layer.bottom_shapes[0].axes(); ++axis) {
    if (std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
  }
  return Values{graph.Node("Transpose", layer.bottoms, {Attribute("perm", order)})};
}

// Channel j of group i becomes channel i of group j.
Result<Values> ConvertShuffleChannel(const ExportedLayer& layer, OnnxGraph& graph) {
  const ExportShape& from = layer.bottom_shapes[0];
  const std::int64_t groups = layer.param.shuffle_channel_param().group();
  ExportShape apart = from;
  apart.extents[1] = groups;
  const bool any = from.extents[1] == kAnyBatch;
  apart.extents.insert(apart.extents.begin() + 2, any ? kAnyBatch : from.extents[1] / groups);
  std::vector<std::int64_t> order = AxesFrom(0, apart.axes());
  std::swap(order[1], order[2]);
  const std::string dealt = graph.Node("Transpose", {graph.Reshape(layer.bottoms[0], from, apart)}, {Attribute("perm", order)});
  return Values{graph.Node("Reshape", {dealt, graph.Ints("shape", from.extents)})};
}

// Rows of the first bottom, which the second one counts.
Result<Values> ConvertBatchReindex(const ExportedLayer& layer, OnnxGraph& graph) {
  return Values{graph.Node("Gather", {layer.bottoms[0], graph.ToInt(layer.bottoms[1])})};
}

Result<Values> ConvertParameter(const ExportedLayer& layer, OnnxGraph& graph) { return Values{layer.Weights(0, graph)}; }

}  // namespace poseidon::caffe
