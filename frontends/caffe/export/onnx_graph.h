// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_EXPORT_ONNX_GRAPH_H_
#define POSEIDON_FRONTENDS_CAFFE_EXPORT_ONNX_GRAPH_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "frontends/caffe/export/onnx.pb.h"

namespace poseidon::caffe {

// An extent that any batch may have; where a Reshape goes to, it is what ONNX infers.
inline constexpr std::int64_t kAnyBatch = -1;

// The shape of a blob as an exported net has it.
struct ExportShape {
  std::vector<std::int64_t> extents;  // kAnyBatch on at most one axis
  std::int64_t per_image = 0;         // the extent of that axis for a batch of one; 0: there is none

  std::int64_t axes() const { return static_cast<std::int64_t>(extents.size()); }
  friend bool operator==(const ExportShape&, const ExportShape&) = default;
};

// Names of values, which nodes read and make.
using Values = std::vector<std::string>;
using Attributes = std::vector<onnx::AttributeProto>;

onnx::AttributeProto Attribute(const std::string& name, std::int64_t value);
onnx::AttributeProto Attribute(const std::string& name, double value);
onnx::AttributeProto Attribute(const std::string& name, const std::vector<std::int64_t>& values);
onnx::AttributeProto Attribute(const std::string& name, const std::string& value);

// An ONNX graph that grows node by node. Each function adds what it says and returns the name of the value; names are
// made of the present layer's and of what the value is, and none is given twice. Thread: one at a time.
class OnnxGraph {
 public:
  // `kept` are names that no value gets but by AddInput and NameValues: those of the blobs.
  explicit OnnxGraph(std::set<std::string> kept) : taken_(std::move(kept)) {}

  // What is added from here on belongs to this layer.
  void BeginLayer(const std::string& layer) { layer_ = layer; }
  // From now on the net is one for the batch that its shapes say: a layer's numbers depend on it.
  void RequireFixedBatch() { fixed_batch_required_ = true; }
  bool fixed_batch_required() const { return fixed_batch_required_; }

  std::string Node(const std::string& op, const Values& inputs, const Attributes& attributes = {});
  Values Nodes(const std::string& op, const Values& inputs, std::size_t outputs, const Attributes& attributes = {});

  // A loop over the first axis of `sequences`, which are equally long. `step` adds the nodes of one step to the body: from the present
  // `states` and then the slices of `sequences` it makes the next states and then what each step leaves. Returns the states after the
  // last step, and what the steps left, one behind the other along a new first axis. Constants belong to this graph: the body reads them.
  using Step = std::function<Values(const Values& given, OnnxGraph& body)>;
  Values Scan(const Values& states, const Values& sequences, const Step& step);

  // Constants. The numbers of Weights are those that the layer has learned; who shares them shares the constant.
  std::string Weights(const std::string& name, const std::vector<std::int64_t>& shape, std::span<const float> numbers);
  std::string Floats(const std::string& name, const std::vector<std::int64_t>& shape, std::span<const float> numbers);
  std::string Ints(const std::string& name, const std::vector<std::int64_t>& numbers);
  std::string Int(const std::string& name, std::int64_t number);  // of no axes, as Scalar
  std::string Scalar(double number);

  // Frequent nodes; those that would change nothing return `value` itself.
  std::string Times(const std::string& value, double factor);
  std::string Plus(const std::string& value, double term);
  std::string Reshape(const std::string& value, const ExportShape& from, const ExportShape& to);
  std::string ReduceMean(const std::string& value, const std::vector<std::int64_t>& axes, bool keep_axes);
  std::string ToFloat(const std::string& value);
  std::string ToInt(const std::string& value);

  // An input of the graph, of that very name, one of the kept ones.
  void AddInput(const std::string& name, const ExportShape& shape);
  // The last step: values get the names of the blobs that they are (`value_of`, by blob; two may be one value), and the blobs of `outputs`
  // with their shapes become the outputs.
  void NameValues(const std::map<std::string, std::string>& value_of, const std::vector<std::pair<std::string, ExportShape>>& outputs);

  onnx::GraphProto& proto() { return proto_; }

 private:
  std::string Unique(const std::string& name);
  std::string AddInts(const std::string& name, const std::vector<std::int64_t>& shape, std::span<const std::int64_t> numbers);
  onnx::TensorProto* AddTensor(const std::string& name, const std::vector<std::int64_t>& shape);
  void Rename(const std::map<std::string, std::string>& names);
  void AddOutput(const std::string& blob, const std::string& value, const ExportShape& shape);

  onnx::GraphProto proto_;
  std::string layer_;
  bool fixed_batch_required_ = false;
  std::set<std::string> taken_;
  std::set<std::string> inputs_;
  std::set<std::string> made_;  // by nodes
  std::map<std::pair<const float*, std::vector<std::int64_t>>, std::string> weights_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_EXPORT_ONNX_GRAPH_H_
