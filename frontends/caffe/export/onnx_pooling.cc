// SPDX-License-Identifier: Apache-2.0
// Layers with windows that slide over planes, and nothing learned.
#include <algorithm>

#include "frontends/caffe/export/onnx_layer.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

using Pair = std::vector<std::int64_t>;  // height, width

Pair Spatial(const ExportShape& shape) { return {shape.extents[2], shape.extents[3]}; }

// Of Pooling and of SPP.
template <typename Options>
PoolWindows::Kind KindOf(const Options& options) {
  return options.pool() == Options::MAX   ? PoolWindows::Kind::kMax
         : options.pool() == Options::AVE ? PoolWindows::Kind::kMean
                                          : PoolWindows::Kind::kMeanOfDraws;
}

PoolWindows WindowsOf(const PoolingParameter& options, const Pair& from) {
  PoolWindows windows{.kind = KindOf(options), .kernel = {}, .stride = {}, .pad = {}};
  const auto pair = [](bool both, std::int64_t one, std::int64_t h, std::int64_t w) { return both ? Pair{h, w} : Pair{one, one}; };
  windows.kernel = options.global_pooling()
                       ? from
                       : pair(!options.has_kernel_size(), options.kernel_size(), options.kernel_h(), options.kernel_w());
  windows.stride = pair(options.has_stride_h(), options.stride(), options.stride_h(), options.stride_w());
  windows.pad = pair(options.has_pad_h(), options.pad(), options.pad_h(), options.pad_w());
  return windows;
}

// Of each axis at its beginning, then at its end: the last window may end before the padding does.
std::vector<std::int64_t> Pads(const Pair& before, const Pair& beyond) {
  std::vector<std::int64_t> pads = before;
  for (std::size_t i = 0; i < 2; ++i) pads.push_back(std::max<std::int64_t>(0, before[i] + beyond[i]));
  return pads;
}

// Caffe divides a mean by the part of its window that is in the image or its padding. ONNX divides by what is in the
// image, or by the whole window: where the last windows reach beyond the padding, that is made part of the image.
std::string AddMean(const PoolWindows& windows, std::string value, const Pair& beyond, OnnxGraph& graph) {
  Pair before = windows.pad;
  const bool padded = windows.pad[0] > 0 || windows.pad[1] > 0;
  const bool reaches = beyond[0] > 0 || beyond[1] > 0;
  if (padded && reaches) {
    const Pair& pad = windows.pad;
    value = graph.Node("Pad", {value, graph.Ints("pads", {0, 0, pad[0], pad[1], 0, 0, pad[0], pad[1]})});
    before = {0, 0};
  }
  return graph.Node("AveragePool", {value},
                    {Attribute("kernel_shape", windows.kernel), Attribute("strides", windows.stride),
                     Attribute("pads", Pads(before, beyond)),
                     Attribute("count_include_pad", std::int64_t{reaches ? 0 : 1})});
}

// Sum of x^2 over sum of x, or 0 where that sum is not above 0.
std::string AddMeanOfDraws(const PoolWindows& windows, const std::string& x, const Pair& beyond, OnnxGraph& graph) {
  const std::string mean = AddMean(windows, x, beyond, graph);
  const std::string of_squares = AddMean(windows, graph.Node("Mul", {x, x}), beyond, graph);
  const std::string zero = graph.Scalar(0);
  return graph.Node("Where", {graph.Node("Greater", {mean, zero}), graph.Node("Div", {of_squares, mean}), zero});
}

}  // namespace

Values AddPooling(const PoolWindows& windows, const std::string& value, const Pair& from, const Pair& to, bool with_places,
                  OnnxGraph& graph) {
  Pair beyond(2);  // how far the last window reaches beyond the padding; below 0 where it ends before
  for (std::size_t i = 0; i < 2; ++i) {
    beyond[i] = (to[i] - 1) * windows.stride[i] + windows.kernel[i] - from[i] - 2 * windows.pad[i];
  }
  if (windows.kind == PoolWindows::Kind::kMean) return {AddMean(windows, value, beyond, graph)};
  if (windows.kind == PoolWindows::Kind::kMeanOfDraws) return {AddMeanOfDraws(windows, value, beyond, graph)};
  const Values both = graph.Nodes("MaxPool", {value}, with_places ? 2 : 1,
                                  {Attribute("kernel_shape", windows.kernel), Attribute("strides", windows.stride),
                                   Attribute("pads", Pads(windows.pad, beyond))});
  if (!with_places) return both;
  // ONNX counts places through all planes.
  const std::string in_plane = graph.Node("Mod", {both[1], graph.Ints("plane", {from[0] * from[1]})});
  return {both[0], graph.ToFloat(in_plane)};
}

Result<Values> ConvertPooling(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.pooling_param();
  const bool with_places = layer.top_shapes.size() > 1;
  if (options.global_pooling() && !with_places && options.pool() != PoolingParameter::STOCHASTIC) {
    return Values{graph.Node(options.pool() == PoolingParameter::MAX ? "GlobalMaxPool" : "GlobalAveragePool", layer.bottoms)};
  }
  const Pair from = Spatial(layer.bottom_shapes[0]);
  return AddPooling(WindowsOf(options, from), layer.bottoms[0], from, Spatial(layer.top_shapes[0]), with_places, graph);
}

// Level i has 2^i x 2^i windows, and levels are laid one after the other in one row per image.
Result<Values> ConvertSpp(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.spp_param();
  const Pair from = Spatial(layer.bottom_shapes[0]);
  Values levels;
  for (std::uint32_t level = 0; level < options.pyramid_height(); ++level) {
    const std::int64_t bins = std::int64_t{1} << level;
    PoolWindows windows{.kind = KindOf(options), .kernel = {}, .stride = {}, .pad = {}};
    Pair to;
    for (const std::int64_t extent : from) {
      const std::int64_t kernel = (extent + bins - 1) / bins;
      const std::int64_t pad = (kernel * bins - extent + 1) / 2;
      windows.kernel.push_back(kernel);
      windows.pad.push_back(pad);
      to.push_back((extent + 2 * pad - kernel + kernel - 1) / kernel + 1);
    }
    windows.stride = windows.kernel;
    const bool clips = windows.pad[0] > 0 || windows.pad[1] > 0;
    for (std::size_t i = 0; i < 2; ++i) {
      if (clips && (to[i] - 1) * windows.stride[i] >= from[i] + windows.pad[i]) --to[i];
    }
    levels.push_back(AddPooling(windows, layer.bottoms[0], from, to, /*with_places=*/false, graph).front());
  }
  if (levels.size() == 1) return levels;
  for (std::string& level : levels) level = graph.Node("Flatten", {level});
  return Values{graph.Node("Concat", levels, {Attribute("axis", std::int64_t{1})})};
}

Result<Values> ConvertLrn(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.lrn_param();
  const std::int64_t size = options.local_size();
  const auto alpha = static_cast<double>(options.alpha());
  const auto beta = static_cast<double>(options.beta());
  if (options.norm_region() == LRNParameter::ACROSS_CHANNELS) {
    return Values{graph.Node("LRN", layer.bottoms, {Attribute("size", size), Attribute("alpha", alpha), Attribute("beta", beta),
                                                    Attribute("bias", static_cast<double>(options.k()))})};
  }
  // x / (1 + alpha * (mean of x^2 over size x size pixels, padded by zeros))^beta
  const std::string& x = layer.bottoms[0];
  const PoolWindows windows{.kind = PoolWindows::Kind::kMean, .kernel = {size, size}, .stride = {1, 1}, .pad = {size / 2, size / 2}};
  const Pair plane = Spatial(layer.bottom_shapes[0]);
  const std::string mean = AddPooling(windows, graph.Node("Mul", {x, x}), plane, plane, /*with_places=*/false, graph).front();
  const std::string scale = graph.Node("Pow", {graph.Plus(graph.Times(mean, alpha), 1), graph.Scalar(beta)});
  return Values{graph.Node("Div", {x, scale})};
}

}  // namespace poseidon::caffe
