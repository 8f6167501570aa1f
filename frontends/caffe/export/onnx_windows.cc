// SPDX-License-Identifier: Apache-2.0
// Windows of images, rows (image, x1, y1, x2, y2) of the second bottom, which are pooled to a grid of one size.
#include "frontends/caffe/export/onnx_layer.h"

namespace poseidon::caffe {
namespace {

std::string RowsOf(const ExportedLayer& layer, OnnxGraph& graph) {
  const ExportShape& windows = layer.bottom_shapes[1];
  return graph.Reshape(layer.bottoms[1], windows, {{windows.extents[0], 5}, windows.per_image});
}

// Halves away from 0, as std::round has them: ONNX's own Round has even ones.
std::string RoundAway(const std::string& x, OnnxGraph& graph) {
  const std::string whole = graph.Node("Floor", {graph.Plus(graph.Node("Abs", {x}), 0.5)});
  return graph.Node("Mul", {graph.Node("Sign", {x}), whole});
}

std::string ToDouble(const std::string& value, OnnxGraph& graph) {
  return graph.Node("Cast", {value}, {Attribute("to", std::int64_t{onnx::TensorProto::DOUBLE})});
}

std::string Unsqueeze(const std::string& value, std::int64_t axis, OnnxGraph& graph) {
  return graph.Node("Unsqueeze", {value, graph.Ints("axis", {axis})});
}

// Where the cells of all windows begin and end in one direction, [R, grid] each, in places of 0 to `extent`.
struct CellEdges {
  std::string first, last;
};

// `low` and `high`: the pixels at the ends of all windows, [R, 1]. In single precision and this order, as the layer has it: edges are
// rounded to places.
CellEdges EdgesOf(const PSROIPoolingParameter& options, const std::string& low, const std::string& high, std::int64_t extent,
                  OnnxGraph& graph) {
  const auto scale = static_cast<double>(options.spatial_scale());
  std::vector<float> begins;
  std::vector<float> ends;
  for (int i = 0; i < options.group_size(); ++i) {
    begins.push_back(static_cast<float>(i));
    ends.push_back(static_cast<float>(i + 1));
  }
  const std::string begin = graph.Times(RoundAway(low, graph), scale);
  const std::string end = graph.Times(graph.Plus(RoundAway(high, graph), 1), scale);
  const std::string size = graph.Node("Max", {graph.Node("Sub", {end, begin}), graph.Scalar(0.1)});
  const std::string cell = graph.Node("Div", {size, graph.Scalar(options.group_size())});
  const auto edge = [&](const char* round, const std::vector<float>& of_cells) {
    const std::string cells = graph.Floats("cells", {options.group_size()}, of_cells);
    const std::string place = graph.Node(round, {graph.Node("Add", {graph.Node("Mul", {cells, cell}), begin})});
    return graph.Node("Clip", {place, graph.Scalar(0), graph.Scalar(static_cast<double>(extent))});
  };
  return {edge("Floor", begins), edge("Ceil", ends)};
}

// Of images [N, D * cells, H, W] the sums of all numbers above and left of each of the (H + 1) x (W + 1) crossings between places, as rows
// [N * cells * crossings, D]. A cell's sum is a difference of four of them, which needs double precision.
std::string SumsToCrossings(const ExportedLayer& layer, std::int64_t cells, OnnxGraph& graph) {
  const ExportShape& images = layer.bottom_shapes[0];
  const std::int64_t outputs = layer.param.psroi_pooling_param().output_dim();
  const std::int64_t crossings = (images.extents[2] + 1) * (images.extents[3] + 1);
  std::string sums = ToDouble(layer.bottoms[0], graph);
  for (const std::int64_t axis : {2, 3}) sums = graph.Node("CumSum", {sums, graph.Int("axis", axis)});
  sums = graph.Node("Pad", {sums, graph.Ints("pads", {0, 0, 1, 1, 0, 0, 0, 0})});
  sums = graph.Node("Reshape", {sums, graph.Ints("apart", {images.extents[0], outputs, cells, crossings})});
  sums = graph.Node("Transpose", {sums}, {Attribute("perm", std::vector<std::int64_t>{0, 2, 3, 1})});
  return graph.Node("Reshape", {sums, graph.Ints("rows", {-1, outputs})});
}

}  // namespace

// ONNX has Fast R-CNN's own operator, which rounds the windows' corners and edges as Caffe does.
Result<Values> ConvertRoiPooling(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.roi_pooling_param();
  const std::vector<std::int64_t> grid = {options.pooled_h(), options.pooled_w()};
  return Values{graph.Node("MaxRoiPool", {layer.bottoms[0], RowsOf(layer, graph)},
                           {Attribute("pooled_shape", grid), Attribute("spatial_scale", static_cast<double>(options.spatial_scale()))})};
}

// R-FCN's: the mean of each cell, from a channel of the cell's own. ONNX has no operator for it; the sums over cells of any size are
// differences of running sums, of which those at the cells' corners are gathered.
Result<Values> ConvertPsRoiPooling(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.psroi_pooling_param();
  const ExportShape& images = layer.bottom_shapes[0];
  if (!KnowsPlanes(images, graph)) return Values{layer.bottoms[0]};
  const std::int64_t height = images.extents[2];
  const std::int64_t width = images.extents[3];
  const std::int64_t grid = options.group_size();
  const Values parts = graph.Nodes("Split", {RowsOf(layer, graph)}, 5, {Attribute("axis", std::int64_t{1})});
  const CellEdges rows = EdgesOf(options, parts[2], parts[4], height, graph);
  const CellEdges columns = EdgesOf(options, parts[1], parts[3], width, graph);

  // The row of each window's and cell's first crossing, [R, grid, grid].
  const std::int64_t crossings = (height + 1) * (width + 1);
  std::vector<std::int64_t> of_cell;
  for (std::int64_t i = 0; i < grid * grid; ++i) of_cell.push_back(i * crossings);
  const std::string cells = graph.Node("Reshape", {graph.Ints("of_cell", of_cell), graph.Ints("grid", {grid, grid})});
  const std::string of_image = graph.Node("Mul", {graph.ToInt(parts[0]), graph.Ints("image", {grid * grid * crossings})});
  const std::string first = graph.Node("Add", {Unsqueeze(of_image, 2, graph), cells});

  const std::string sums = SumsToCrossings(layer, grid * grid, graph);
  const auto corner = [&](const std::string& row, const std::string& column) {
    const std::string down = graph.Node("Mul", {Unsqueeze(graph.ToInt(row), 2, graph), graph.Ints("row", {width + 1})});
    const std::string right = Unsqueeze(graph.ToInt(column), 1, graph);
    return graph.Node("Gather", {sums, graph.Node("Add", {first, graph.Node("Add", {down, right})})});
  };
  const std::string below = graph.Node("Sub", {corner(rows.last, columns.last), corner(rows.last, columns.first)});
  const std::string above = graph.Node("Sub", {corner(rows.first, columns.last), corner(rows.first, columns.first)});
  // Of a cell without places the sum is 0, whatever divides it.
  const auto count = [&](const CellEdges& edges, std::int64_t axis) {
    return Unsqueeze(graph.Node("Sub", {edges.last, edges.first}), axis, graph);
  };
  const std::string places = graph.Node("Max", {graph.Node("Mul", {count(rows, 2), count(columns, 1)}), graph.Scalar(1)});
  const std::string mean =
      graph.Node("Div", {graph.Node("Sub", {below, above}), Unsqueeze(ToDouble(places, graph), 3, graph)});
  return Values{graph.Node("Transpose", {graph.ToFloat(mean)}, {Attribute("perm", std::vector<std::int64_t>{0, 3, 1, 2})})};
}

}  // namespace poseidon::caffe
