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

// (x - mean) / sqrt(variance + eps), both of x itself over `axes`.
std::string Normalized(const std::string& x, const std::vector<std::int64_t>& axes, double eps, OnnxGraph& graph) {
  const std::string centred = Centred(x, axes, graph);
  return graph.Node("Div", {centred, graph.Node("Sqrt", {graph.Plus(Variance(centred, axes, graph), eps)})});
}

// All axes but that of the channels: what a batch's statistics are over.
std::vector<std::int64_t> BesideChannels(std::int64_t channels, std::int64_t axes) {
  std::vector<std::int64_t> others = AxesFrom(0, axes);
  others.erase(others.begin() + channels);
  return others;
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

// A learned blob with a number for each channel, axis 1, whatever its own shape is.
std::string OfChannels(const ExportedLayer& layer, std::size_t index, OnnxGraph& graph) {
  std::vector<std::int64_t> shape(layer.bottom_shapes[0].extents.size() - 1, 1);
  shape[0] = static_cast<std::int64_t>(layer.blobs[index].numbers.size());
  return layer.Weights(index, shape, graph);
}

// Statistics of the batch at hand, also in the TEST phase. With stats_batch_size each so many images have their own.
std::string NormalizedByBatch(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.batch_norm_param();
  const auto eps = static_cast<double>(options.eps());
  const ExportShape& whole = layer.bottom_shapes[0];
  const auto images = static_cast<std::int64_t>(options.stats_batch_size());
  if (images == 0) return Normalized(layer.bottoms[0], BesideChannels(1, whole.axes()), eps, graph);
  ExportShape groups = whole;
  if (groups.extents[0] != kAnyBatch) groups.extents[0] /= images;
  groups.extents.insert(groups.extents.begin() + 1, images);
  std::vector<std::int64_t> axes = BesideChannels(2, groups.axes());
  axes.erase(axes.begin());
  const std::string normalized = Normalized(graph.Reshape(layer.bottoms[0], whole, groups), axes, eps, graph);
  return graph.Reshape(normalized, groups, whole);
}

// SegNet's BN: statistics of the batch at hand, which may be tops, or in mode INFERENCE none.
Values SegNetBn(const ExportedLayer& layer, OnnxGraph& graph) {
  constexpr double kEps = 1e-9;
  const std::string& x = layer.bottoms[0];
  const bool learns = layer.param.bn_param().bn_mode() == BNParameter::LEARN;
  const std::vector<std::int64_t> axes = BesideChannels(1, layer.bottom_shapes[0].axes());
  const std::string scaled = graph.Node("Mul", {learns ? Normalized(x, axes, kEps, graph) : x, OfChannels(layer, 0, graph)});
  Values tops = {graph.Node("Add", {scaled, OfChannels(layer, 1, graph)})};
  for (std::size_t i = 1; i < layer.top_shapes.size(); ++i) {
    const std::string statistic =
        i == 1 ? graph.ReduceMean(x, axes, /*keep_axes=*/true) : Variance(Centred(x, axes, graph), axes, graph);
    tops.push_back(graph.Node("Reshape", {statistic, graph.Ints("shape", layer.top_shapes[i].extents)}));
  }
  return tops;
}

}  // namespace

Result<Values> ConvertBatchNorm(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.batch_norm_param();
  const auto eps = static_cast<double>(options.eps());
  const std::string& x = layer.bottoms[0];
  const bool scales = layer.blobs.size() > 3;  // scale_bias of a fork
  if (options.has_use_global_stats() && !options.use_global_stats()) {
    const std::string normalized = NormalizedByBatch(layer, graph);
    if (!scales) return Values{normalized};
    return Values{graph.Node("Add", {graph.Node("Mul", {normalized, OfChannels(layer, 3, graph)}), OfChannels(layer, 4, graph)})};
  }
  const std::vector<std::int64_t>& channels = layer.blobs[0].shape;
  const std::vector<float> ones(layer.blobs[0].numbers.size(), 1.0F);
  const std::vector<float> zeros(layer.blobs[0].numbers.size(), 0.0F);
  return Values{graph.Node("BatchNormalization",
                           {x, scales ? layer.Weights(3, graph) : graph.Floats("scale", channels, ones),
                            scales ? layer.Weights(4, graph) : graph.Floats("bias", channels, zeros),
                            Statistic(layer, 0, "mean", graph), Statistic(layer, 1, "variance", graph)},
                           {Attribute("epsilon", eps)})};
}

Result<Values> ConvertBn(const ExportedLayer& layer, OnnxGraph& graph) {
  if (layer.blobs.size() == 2) return SegNetBn(layer, graph);
  Values inputs = layer.bottoms;  // then slope, bias, running mean and variance
  const auto channels = static_cast<std::int64_t>(layer.blobs[0].numbers.size());
  for (std::size_t i = 0; i < 4; ++i) inputs.push_back(layer.Weights(i, {channels}, graph));
  return Values{graph.Node("BatchNormalization", inputs, {Attribute("epsilon", static_cast<double>(layer.param.bn_param().eps()))})};
}

// scale * x / sqrt(sum of x^2 + eps), the sum over the channels at one place or, across_spatial, over the whole image (SSD).
Result<Values> ConvertNormalize(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.norm_param();
  const std::int64_t last = options.across_spatial() ? layer.bottom_shapes[0].axes() : 2;
  const std::string sum = graph.Node("ReduceSumSquare", layer.bottoms, {Attribute("axes", AxesFrom(1, last))});
  const std::string norm = graph.Node("Sqrt", {graph.Plus(sum, static_cast<double>(options.eps()))});
  const std::string scale = options.channel_shared() ? layer.Weights(0, graph) : OfChannels(layer, 0, graph);
  return Values{graph.Node("Mul", {graph.Node("Div", {layer.bottoms[0], norm}), scale})};
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
