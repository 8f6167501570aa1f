// SPDX-License-Identifier: Apache-2.0
// Layers that shift and scale: by statistics, by what was learned, by another blob.
#include <algorithm>
#include <utility>

#include "frontends/caffe/export/onnx_layer.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// x less its mean over `axes`.
std::string Centred(const std::string& x, const std::vector<std::int64_t>& axes, OnnxGraph& graph) {
  return graph.Node("Sub", {x, graph.ReduceMean(x, axes, /*keep_axes=*/true)});
}

// The mean of the squares of what is centred.
std::string Variance(const std::string& centred, const std::vector<std::int64_t>& axes, OnnxGraph& graph) {
  return graph.ReduceMean(graph.Node("Mul", {centred, centred}), axes, /*keep_axes=*/true);
}

// The saved sums over their saved count, the third blob: 0 counts as no statistics.
std::string Statistic(const ExportedLayer& layer, std::size_t index, const char* name, OnnxGraph& graph) {
  const double count = static_cast<double>(layer.blobs[2].numbers[0]);
  const auto scale = static_cast<float>(count == 0 ? 0 : 1 / count);
  std::vector<float> numbers(layer.blobs[index].numbers.begin(), layer.blobs[index].numbers.end());
  for (float& number : numbers) number *= scale;
  return graph.Floats(name, layer.blobs[index].shape, numbers);
}

// `small`, whose axes are those of the bottom from `axis` on, with axes of extent 1 behind them as the bottom has them.
ExportShape Spread(ExportShape small, std::int64_t axis, std::int64_t axes) {
  small.extents.resize(std::max(small.extents.size(), static_cast<std::size_t>(axes - axis)), 1);
  return small;
}

std::string Combine(const char* op, const ExportedLayer& layer, std::int64_t axis, OnnxGraph& graph) {
  const std::int64_t axes = layer.bottom_shapes[0].axes();
  const ExportShape& small = layer.bottom_shapes[1];
  if (small.axes() == 0) axis = axes;  // a number: it fits everywhere
  const std::string other = graph.Reshape(layer.bottoms[1], small, Spread(small, axis, axes));
  return graph.Node(op, {layer.bottoms[0], other});
}

std::string Learned(const ExportedLayer& layer, std::size_t index, std::int64_t axis, OnnxGraph& graph) {
  const ExportShape shape = Spread({layer.blobs[index].shape, 0}, axis, layer.bottom_shapes[0].axes());
  return layer.Weights(index, shape.extents, graph);
}

}  // namespace

Result<Values> ConvertBatchNorm(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.batch_norm_param();
  const auto eps = static_cast<double>(options.eps());
  const std::string& x = layer.bottoms[0];
  if (layer.blobs.size() > 3) return Unimplemented("scale_bias");
  if (options.stats_batch_size() > 0) return Unimplemented("stats_batch_size");
  if (options.has_use_global_stats() && !options.use_global_stats()) {  // those of the batch, also in the TEST phase
    std::vector<std::int64_t> axes = AxesFrom(2, layer.bottom_shapes[0].axes());
    axes.insert(axes.begin(), 0);
    const std::string centred = Centred(x, axes, graph);
    return Values{graph.Node("Div", {centred, graph.Node("Sqrt", {graph.Plus(Variance(centred, axes, graph), eps)})})};
  }
  const std::vector<std::int64_t>& channels = layer.blobs[0].shape;
  const std::vector<float> ones(layer.blobs[0].numbers.size(), 1.0F);
  const std::vector<float> zeros(layer.blobs[0].numbers.size(), 0.0F);
  return Values{graph.Node("BatchNormalization",
                           {x, graph.Floats("scale", channels, ones), graph.Floats("bias", channels, zeros),
                            Statistic(layer, 0, "mean", graph), Statistic(layer, 1, "variance", graph)},
                           {Attribute("epsilon", eps)})};
}

Result<Values> ConvertScale(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.scale_param();
  const std::int64_t axis = AxisOf(options.axis(), layer.bottom_shapes[0].axes());
  const bool learned = layer.bottoms.size() == 1;
  const std::string scaled = learned ? graph.Node("Mul", {layer.bottoms[0], Learned(layer, 0, axis, graph)})
                                     : Combine("Mul", layer, axis, graph);
  if (!options.bias_term()) return Values{scaled};
  return Values{graph.Node("Add", {scaled, Learned(layer, learned ? 1 : 0, axis, graph)})};
}

Result<Values> ConvertBias(const ExportedLayer& layer, OnnxGraph& graph) {
  const std::int64_t axis = AxisOf(layer.param.bias_param().axis(), layer.bottom_shapes[0].axes());
  if (layer.bottoms.size() == 2) return Values{Combine("Add", layer, axis, graph)};
  return Values{graph.Node("Add", {layer.bottoms[0], Learned(layer, 0, axis, graph)})};
}

// a * x + y with a number of `a` for every channel (SENet).
Result<Values> ConvertAxpy(const ExportedLayer& layer, OnnxGraph& graph) {
  ExportShape channels = layer.bottom_shapes[1];
  std::fill(channels.extents.begin() + 2, channels.extents.end(), 1);
  const std::string factor = graph.Reshape(layer.bottoms[0], layer.bottom_shapes[0], channels);
  return Values{graph.Node("Add", {graph.Node("Mul", {layer.bottoms[1], factor}), layer.bottoms[2]})};
}

// Each plane, or with across_channels each image, by itself. Caffe takes every blob for one of four axes.
Result<Values> ConvertMvn(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.mvn_param();
  ExportShape four = layer.bottom_shapes[0];
  four.extents.resize(4, 1);
  const std::vector<std::int64_t> axes = AxesFrom(options.across_channels() ? 1 : 2, 4);
  std::string value = Centred(graph.Reshape(layer.bottoms[0], layer.bottom_shapes[0], four), axes, graph);
  if (options.normalize_variance()) {
    const std::string deviation = graph.Node("Sqrt", {Variance(value, axes, graph)});
    value = graph.Node("Div", {value, graph.Plus(deviation, static_cast<double>(options.eps()))});
  }
  return Values{graph.Reshape(value, four, layer.top_shapes[0])};
}

Result<Values> ConvertSoftmax(const ExportedLayer& layer, OnnxGraph& graph) {
  const std::int64_t axis = AxisOf(layer.param.softmax_param().axis(), layer.bottom_shapes[0].axes());
  return Values{graph.Node("Softmax", layer.bottoms, {Attribute("axis", axis)})};
}

}  // namespace poseidon::caffe
