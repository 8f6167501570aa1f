// SPDX-License-Identifier: Apache-2.0
// Layers that move numbers and compute none.
#include <limits>

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

// Rows of the first bottom, which the second one counts.
Result<Values> ConvertBatchReindex(const ExportedLayer& layer, OnnxGraph& graph) {
  return Values{graph.Node("Gather", {layer.bottoms[0], graph.ToInt(layer.bottoms[1])})};
}

Result<Values> ConvertParameter(const ExportedLayer& layer, OnnxGraph& graph) { return Values{layer.Weights(0, graph)}; }

}  // namespace poseidon::caffe
