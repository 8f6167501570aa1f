// SPDX-License-Identifier: Apache-2.0
// Layers that work element by element.
#include <cmath>

#include "frontends/caffe/export/onnx_layer.h"

namespace poseidon::caffe {
namespace {

double Option(float value) { return static_cast<double>(value); }

Result<Values> One(std::string value) { return Values{std::move(value)}; }

// exp, log and power have an inner scale * x + shift.
template <typename Options>
std::string Inner(const ExportedLayer& layer, const Options& options, OnnxGraph& graph) {
  return graph.Plus(graph.Times(layer.bottoms[0], Option(options.scale())), Option(options.shift()));
}

}  // namespace

Result<Values> ConvertAbsVal(const ExportedLayer& layer, OnnxGraph& graph) { return One(graph.Node("Abs", layer.bottoms)); }
// log(1 + exp(x))
Result<Values> ConvertBnll(const ExportedLayer& layer, OnnxGraph& graph) { return One(graph.Node("Softplus", layer.bottoms)); }
Result<Values> ConvertSigmoid(const ExportedLayer& layer, OnnxGraph& graph) { return One(graph.Node("Sigmoid", layer.bottoms)); }
Result<Values> ConvertTanh(const ExportedLayer& layer, OnnxGraph& graph) { return One(graph.Node("Tanh", layer.bottoms)); }
Result<Values> ConvertSilence(const ExportedLayer&, OnnxGraph&) { return Values(); }
// Every top is the bottom: nothing is computed.
Result<Values> ConvertAlias(const ExportedLayer& layer, OnnxGraph&) { return Values(layer.top_shapes.size(), layer.bottoms[0]); }

// Nothing, but with fields of forks (layers/dropout_layer.cc).
Result<Values> ConvertDropout(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.dropout_param();
  if (options.scale_train()) return One(layer.bottoms[0]);
  return One(graph.Times(layer.bottoms[0], 1 - Option(options.dropout_ratio())));
}

Result<Values> ConvertRelu(const ExportedLayer& layer, OnnxGraph& graph) {
  const double slope = Option(layer.param.relu_param().negative_slope());
  if (slope == 0) return One(graph.Node("Relu", layer.bottoms));
  return One(graph.Node("LeakyRelu", layer.bottoms, {Attribute("alpha", slope)}));
}

Result<Values> ConvertPRelu(const ExportedLayer& layer, OnnxGraph& graph) {
  // Channels are axis 1; axes of extent 1 behind it have the slopes spread along them.
  std::vector<std::int64_t> shape;
  if (!layer.param.prelu_param().channel_shared()) {
    shape.assign(layer.bottom_shapes[0].extents.size() - 1, 1);
    shape[0] = layer.blobs[0].shape[0];
  }
  return One(graph.Node("PRelu", {layer.bottoms[0], layer.Weights(0, shape, graph)}));
}

Result<Values> ConvertElu(const ExportedLayer& layer, OnnxGraph& graph) {
  return One(graph.Node("Elu", layer.bottoms, {Attribute("alpha", Option(layer.param.elu_param().alpha()))}));
}

Result<Values> ConvertClip(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.clip_param();
  return One(graph.Node("Clip", {layer.bottoms[0], graph.Scalar(Option(options.min())), graph.Scalar(Option(options.max()))}));
}

Result<Values> ConvertRelu6(const ExportedLayer& layer, OnnxGraph& graph) {
  return One(graph.Node("Clip", {layer.bottoms[0], graph.Scalar(0), graph.Scalar(6)}));
}

Result<Values> ConvertSwish(const ExportedLayer& layer, OnnxGraph& graph) {
  const std::string inner = graph.Times(layer.bottoms[0], Option(layer.param.swish_param().beta()));
  return One(graph.Node("Mul", {layer.bottoms[0], graph.Node("Sigmoid", {inner})}));
}

Result<Values> ConvertThreshold(const ExportedLayer& layer, OnnxGraph& graph) {
  const std::string least = graph.Scalar(Option(layer.param.threshold_param().threshold()));
  return One(graph.ToFloat(graph.Node("Greater", {layer.bottoms[0], least})));
}

Result<Values> ConvertPower(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.power_param();
  const std::string inner = Inner(layer, options, graph);
  if (options.power() == 1) return One(inner);
  return One(graph.Node("Pow", {inner, graph.Scalar(Option(options.power()))}));
}

// base^(scale * x + shift) = exp(ln base * (scale * x + shift))
Result<Values> ConvertExp(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.exp_param();
  const double log_base = options.base() == -1 ? 1 : std::log(Option(options.base()));
  const std::string scaled = graph.Times(layer.bottoms[0], log_base * Option(options.scale()));
  return One(graph.Node("Exp", {graph.Plus(scaled, log_base * Option(options.shift()))}));
}

Result<Values> ConvertLog(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.log_param();
  const double over_log_base = options.base() == -1 ? 1 : 1 / std::log(Option(options.base()));
  return One(graph.Times(graph.Node("Log", {Inner(layer, options, graph)}), over_log_base));
}

}  // namespace poseidon::caffe
