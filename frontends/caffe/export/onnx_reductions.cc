// SPDX-License-Identifier: Apache-2.0
// Layers that make one number of several: of several bottoms, or of axes.
#include <limits>
#include <utility>

#include "frontends/caffe/export/onnx_layer.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// The k largest along an axis of `count` elements, and where they are, as numbers. Of equal ones the later comes first, as
// Caffe sorts them; ONNX has the earlier first, so it gets them in reverse.
std::pair<std::string, std::string> Largest(const std::string& value, std::int64_t axis, std::int64_t count, std::int64_t k,
                                            OnnxGraph& graph) {
  const std::string reversed = graph.Node(
      "Slice", {value, graph.Ints("starts", {-1}), graph.Ints("ends", {std::numeric_limits<std::int64_t>::min()}),
                graph.Ints("axes", {axis}), graph.Ints("steps", {-1})});
  const Values found = graph.Nodes("TopK", {reversed, graph.Ints("k", {k})}, 2, {Attribute("axis", axis)});
  const std::string place = graph.Node("Sub", {graph.Ints("last", {count - 1}), found[1]});
  return {found[0], graph.ToFloat(place)};
}

}  // namespace

Result<Values> ConvertEltwise(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.eltwise_param();
  Values bottoms = layer.bottoms;
  const char* op = options.operation() == EltwiseParameter::PROD  ? "Mul"
                   : options.operation() == EltwiseParameter::MAX ? "Max"
                                                                  : "Add";
  for (int i = 0; i < options.coeff_size(); ++i) {
    At(bottoms, i) = graph.Times(At(bottoms, i), static_cast<double>(options.coeff(i)));
  }
  std::string result = bottoms[0];
  for (std::size_t i = 1; i < bottoms.size(); ++i) result = graph.Node(op, {result, bottoms[i]});
  return Values{result};
}

Result<Values> ConvertReduction(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.reduction_param();
  const std::int64_t count = layer.bottom_shapes[0].axes();
  const std::vector<std::int64_t> axes = AxesFrom(AxisOf(options.axis(), count), count);
  const Attributes attributes = {Attribute("axes", axes), Attribute("keepdims", std::int64_t{0})};
  std::string result;
  switch (options.operation()) {
    case ReductionParameter::SUM:
      result = graph.Node("ReduceSum", {layer.bottoms[0], graph.Ints("axes", axes)}, {Attribute("keepdims", std::int64_t{0})});
      break;
    case ReductionParameter::ASUM: result = graph.Node("ReduceL1", layer.bottoms, attributes); break;
    case ReductionParameter::SUMSQ: result = graph.Node("ReduceSumSquare", layer.bottoms, attributes); break;
    case ReductionParameter::MEAN: result = graph.Node("ReduceMean", layer.bottoms, attributes); break;
  }
  return Values{graph.Times(result, static_cast<double>(options.coeff()))};
}

Result<Values> ConvertArgMax(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.argmax_param();
  const ExportShape& from = layer.bottom_shapes[0];
  // Without an axis an image is one row.
  const std::int64_t axis = options.has_axis() ? AxisOf(options.axis(), from.axes()) : 1;
  const std::string value = options.has_axis() ? layer.bottoms[0] : graph.Node("Flatten", layer.bottoms);
  std::string top;
  if (options.top_k() == 1 && !options.out_max_val()) {
    top = graph.ToFloat(graph.Node("ArgMax", {value}, {Attribute("axis", axis), Attribute("select_last_index", std::int64_t{1})}));
  } else {
    const std::int64_t count = options.has_axis() ? At(from.extents, axis) : ProductFrom(from, 1);
    if (count == kAnyBatch) graph.RequireFixedBatch();
    const auto [best, place] = Largest(value, axis, count, options.top_k(), graph);
    if (options.has_axis()) return Values{options.out_max_val() ? best : place};
    top = options.out_max_val() ? graph.Node("Concat", {place, best}, {Attribute("axis", std::int64_t{1})}) : place;
  }
  if (options.has_axis()) return Values{top};
  return Values{graph.Node("Reshape", {top, graph.Ints("shape", layer.top_shapes[0].extents)})};
}

}  // namespace poseidon::caffe
