// SPDX-License-Identifier: Apache-2.0
// Recurrent layers. Bottoms: x [T, N, ...] over T steps of N streams, cont [T, N], perhaps x_static [N, ...], and with expose_hidden
// the states before the first step.
//
// ONNX's own LSTM and RNN have no cont: a stream could not begin anew within a sequence. So a step is the body of a Scan, which
// multiplies states by the cont of that step as Caffe does, for any cont. The model does not grow with T and takes any number of steps.
// What the input adds to the gates is one product for all steps, before the loop. A model keeps no states from one run to the next:
// without expose_hidden they are 0 before the first step, as in a net's first pass.
#include "frontends/caffe/export/onnx_layer.h"

namespace poseidon::caffe {
namespace {

// Layout of the learned blobs.
constexpr std::size_t kInputWeight = 0;
constexpr std::size_t kInputBias = 1;
constexpr std::size_t kStaticWeight = 2;

struct Recurrence {
  const ExportedLayer& layer;
  std::size_t state_count;

  std::int64_t outputs() const { return layer.param.recurrent_param().num_output(); }
  bool exposes_hidden() const { return layer.param.recurrent_param().expose_hidden(); }
  bool has_static() const { return layer.bottoms.size() > 2 + (exposes_hidden() ? state_count : 0); }
  std::size_t first_hidden() const { return has_static() ? kStaticWeight + 1 : kStaticWeight; }
};

std::string Product(const std::string& rows, const std::string& weight, const std::string& term, OnnxGraph& graph) {
  Values inputs = {rows, weight};
  if (!term.empty()) inputs.push_back(term);
  return graph.Node("Gemm", inputs, {Attribute("transB", std::int64_t{1})});
}

// What the inputs add to the gates at each step, [T, N, gates].
std::string InputPart(const Recurrence& of, OnnxGraph& graph) {
  const ExportedLayer& layer = of.layer;
  const std::string x = graph.Node("Flatten", {layer.bottoms[0]}, {Attribute("axis", std::int64_t{2})});
  const std::string rows = Product(x, layer.Weights(kInputWeight, graph), layer.Weights(kInputBias, graph), graph);
  const std::vector<std::int64_t> shape = {layer.bottom_shapes[0].extents[0], layer.bottom_shapes[0].extents[1],
                                           layer.blobs[kInputWeight].shape[0]};
  const std::string part = graph.Node("Reshape", {rows, graph.Ints("shape", shape)});
  if (!of.has_static()) return part;
  const std::string fixed = graph.Node("Flatten", {layer.bottoms[2]});
  return graph.Node("Add", {part, Product(fixed, layer.Weights(kStaticWeight, graph), "", graph)});
}

// [N, M] zeros, where N may be any.
std::string ZeroState(const Recurrence& of, OnnxGraph& graph) {
  const std::int64_t streams = of.layer.bottom_shapes[0].extents[1];
  if (streams != kAnyBatch) {
    const std::vector<float> zeros(static_cast<std::size_t>(streams * of.outputs()), 0.0F);
    return graph.Floats("zeros", {streams, of.outputs()}, zeros);
  }
  const std::string shape = graph.Node("Shape", {of.layer.bottoms[0]});
  const std::string extent = graph.Node("Slice", {shape, graph.Ints("start", {1}), graph.Ints("end", {2})});
  const std::string both = graph.Node("Concat", {extent, graph.Ints("outputs", {of.outputs()})}, {Attribute("axis", std::int64_t{0})});
  return graph.Node("ConstantOfShape", {both});
}

Values StatesBefore(const Recurrence& of, OnnxGraph& graph) {
  if (!of.exposes_hidden()) return Values(of.state_count, ZeroState(of, graph));
  Values states;
  const Values& bottoms = of.layer.bottoms;
  const std::string shape = graph.Ints("state", {of.layer.bottom_shapes[0].extents[1], of.outputs()});
  for (std::size_t i = bottoms.size() - of.state_count; i < bottoms.size(); ++i) {
    states.push_back(graph.Node("Reshape", {bottoms[i], shape}));
  }
  return states;
}

// cont with an axis behind the streams: it multiplies whole states.
std::string Column(const std::string& cont, OnnxGraph& graph) {
  return graph.Node("Unsqueeze", {cont, graph.Ints("axes", {2})});
}

// The tops: what the steps have left, then the states, [1, N, M] each, where they are tops.
Values TopsOf(const Recurrence& of, const std::string& left, const Values& scanned, OnnxGraph& graph) {
  Values tops = {left};
  for (std::size_t i = 1; i < of.layer.top_shapes.size(); ++i) {
    tops.push_back(graph.Node("Reshape", {scanned[i - 1], graph.Ints("shape", of.layer.top_shapes[i].extents)}));
  }
  return tops;
}

struct LstmState {
  std::string h, c;
};

// c = cont sigmoid(f) c_before + sigmoid(i) tanh(g); h = sigmoid(o) tanh(c), from the sums of the gates i, f, o, g along `axis`.
LstmState LstmStep(const std::string& sums, const std::string& c_before, const std::string& cont, std::int64_t axis, OnnxGraph& graph) {
  const Values gates = graph.Nodes("Split", {sums}, 4, {Attribute("axis", axis)});
  const std::string forget = graph.Node("Mul", {graph.Node("Sigmoid", {gates[1]}), cont});
  const std::string added = graph.Node("Mul", {graph.Node("Sigmoid", {gates[0]}), graph.Node("Tanh", {gates[3]})});
  const std::string c = graph.Node("Add", {graph.Node("Mul", {forget, c_before}), added});
  return {graph.Node("Mul", {graph.Node("Sigmoid", {gates[2]}), graph.Node("Tanh", {c})}), c};
}

}  // namespace

Result<Values> ConvertLstm(const ExportedLayer& layer, OnnxGraph& graph) {
  const Recurrence of{layer, 2};
  const std::string weight = layer.Weights(of.first_hidden(), graph);
  const Values scanned = graph.Scan(
      StatesBefore(of, graph), {InputPart(of, graph), Column(layer.bottoms[1], graph)},
      [&](const Values& given, OnnxGraph& body) -> Values {
        const std::string& cont = given[3];
        const std::string sums = Product(body.Node("Mul", {given[0], cont}), weight, given[2], body);
        const LstmState state = LstmStep(sums, given[1], cont, 1, body);
        return {state.h, state.c, state.h};
      });
  return TopsOf(of, scanned[2], scanned, graph);
}

// h = tanh(W_hh (cont h) + what the input adds); out = tanh(W_ho h + b_o), of all steps at once.
Result<Values> ConvertRnn(const ExportedLayer& layer, OnnxGraph& graph) {
  const Recurrence of{layer, 1};
  const std::string weight = layer.Weights(of.first_hidden(), graph);
  const Values scanned = graph.Scan(StatesBefore(of, graph), {InputPart(of, graph), Column(layer.bottoms[1], graph)},
                                    [&](const Values& given, OnnxGraph& body) -> Values {
                                      const std::string before = body.Node("Mul", {given[0], given[2]});
                                      const std::string h = body.Node("Tanh", {Product(before, weight, given[1], body)});
                                      return {h, h};
                                    });
  const std::string rows = graph.Node("Flatten", {scanned[1]}, {Attribute("axis", std::int64_t{2})});
  const std::string sums = Product(rows, layer.Weights(of.first_hidden() + 1, graph), layer.Weights(of.first_hidden() + 2, graph), graph);
  const std::string out = graph.Node("Reshape", {graph.Node("Tanh", {sums}), graph.Ints("shape", layer.top_shapes[0].extents)});
  return TopsOf(of, out, scanned, graph);
}

// One step, from a cell [1, N, D] and the sums of its gates. Tops: the cell, then the output.
Result<Values> ConvertLstmUnit(const ExportedLayer& layer, OnnxGraph& graph) {
  const LstmState state = LstmStep(layer.bottoms[1], layer.bottoms[0], Column(layer.bottoms[2], graph), 2, graph);
  return Values{state.c, state.h};
}

}  // namespace poseidon::caffe
