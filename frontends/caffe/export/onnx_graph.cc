// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/export/onnx_graph.h"

#include <bit>
#include <cstddef>
#include <cstring>

namespace poseidon::caffe {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

// A tensor of any shape.
onnx::TypeProto::Tensor* Describe(const std::string& name, onnx::ValueInfoProto* info) {
  info->set_name(name);
  onnx::TypeProto::Tensor* const type = info->mutable_type()->mutable_tensor_type();
  type->set_elem_type(onnx::TensorProto::FLOAT);
  return type;
}

void Describe(const std::string& name, const ExportShape& shape, onnx::ValueInfoProto* info) {
  onnx::TensorShapeProto* const dims = Describe(name, info)->mutable_shape();
  for (const std::int64_t extent : shape.extents) {
    onnx::TensorShapeProto::Dimension* const dim = dims->add_dim();
    if (extent != kAnyBatch) {
      dim->set_dim_value(extent);
    } else if (shape.per_image == 1) {
      dim->set_dim_param("N");
    }
  }
}

}  // namespace

onnx::AttributeProto Attribute(const std::string& name, std::int64_t value) {
  onnx::AttributeProto attribute;
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
  return attribute;
}

onnx::AttributeProto Attribute(const std::string& name, double value) {
  onnx::AttributeProto attribute;
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::FLOAT);
  attribute.set_f(static_cast<float>(value));
  return attribute;
}

onnx::AttributeProto Attribute(const std::string& name, const std::vector<std::int64_t>& values) {
  onnx::AttributeProto attribute;
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INTS);
  attribute.mutable_ints()->Add(values.begin(), values.end());
  return attribute;
}

onnx::AttributeProto Attribute(const std::string& name, const std::string& value) {
  onnx::AttributeProto attribute;
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::STRING);
  attribute.set_s(value);
  return attribute;
}

std::string OnnxGraph::Unique(const std::string& name) {
  std::string unique = name;
  for (int number = 2; !taken_.insert(unique).second; ++number) unique = name + "#" + std::to_string(number);
  return unique;
}

std::string OnnxGraph::Node(const std::string& op, const Values& inputs, const Attributes& attributes) {
  return Nodes(op, inputs, 1, attributes).front();
}

Values OnnxGraph::Nodes(const std::string& op, const Values& inputs, std::size_t outputs, const Attributes& attributes) {
  onnx::NodeProto* const node = proto_.add_node();
  node->set_op_type(op);
  for (const std::string& input : inputs) node->add_input(input);
  for (const onnx::AttributeProto& attribute : attributes) *node->add_attribute() = attribute;
  Values values;
  for (std::size_t i = 0; i < outputs; ++i) {
    values.push_back(Unique(layer_ + "/" + op));
    made_.insert(values.back());
    node->add_output(values.back());
  }
  node->set_name(values.front());
  return values;
}

Values OnnxGraph::Scan(const Values& states, const Values& sequences, const Step& step) {
  OnnxGraph body(std::move(taken_));  // ONNX lets no name of a body be one of the graph around it
  body.BeginLayer(layer_ + "/step");
  Values inputs = states;
  inputs.insert(inputs.end(), sequences.begin(), sequences.end());
  Values given;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    given.push_back(body.Unique(body.layer_ + "/given"));
    Describe(given.back(), body.proto_.add_input());
  }
  const Values made = step(given, body);
  for (const std::string& value : made) {  // a value may be a state and left by the step: outputs are values of their own
    Describe(body.Node("Identity", {value}), body.proto_.add_output());
  }
  body.proto_.set_name(body.layer_);
  taken_ = std::move(body.taken_);
  onnx::AttributeProto attribute;
  attribute.set_name("body");
  attribute.set_type(onnx::AttributeProto::GRAPH);
  attribute.mutable_g()->Swap(&body.proto_);
  return Nodes("Scan", inputs, made.size(), {attribute, Attribute("num_scan_inputs", static_cast<std::int64_t>(sequences.size()))});
}

onnx::TensorProto* OnnxGraph::AddTensor(const std::string& name, const std::vector<std::int64_t>& shape) {
  onnx::TensorProto* const tensor = proto_.add_initializer();
  tensor->set_name(Unique(layer_ + "." + name));
  tensor->mutable_dims()->Add(shape.begin(), shape.end());
  return tensor;
}

std::string OnnxGraph::Weights(const std::string& name, const std::vector<std::int64_t>& shape, std::span<const float> numbers) {
  const auto [found, is_new] = weights_.try_emplace({numbers.data(), shape});
  if (is_new) found->second = Floats(name, shape, numbers);
  return found->second;
}

std::string OnnxGraph::Floats(const std::string& name, const std::vector<std::int64_t>& shape, std::span<const float> numbers) {
  onnx::TensorProto* const tensor = AddTensor(name, shape);
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  tensor->set_raw_data(numbers.data(), numbers.size_bytes());
  return tensor->name();
}

std::string OnnxGraph::Ints(const std::string& name, const std::vector<std::int64_t>& numbers) {
  return AddInts(name, {static_cast<std::int64_t>(numbers.size())}, numbers);
}

std::string OnnxGraph::Int(const std::string& name, std::int64_t number) { return AddInts(name, {}, {&number, 1}); }

std::string OnnxGraph::AddInts(const std::string& name, const std::vector<std::int64_t>& shape, std::span<const std::int64_t> numbers) {
  onnx::TensorProto* const tensor = AddTensor(name, shape);
  tensor->set_data_type(onnx::TensorProto::INT64);
  tensor->set_raw_data(numbers.data(), numbers.size_bytes());
  return tensor->name();
}

std::string OnnxGraph::Scalar(double number) {
  const auto value = static_cast<float>(number);
  return Floats("constant", {}, {&value, 1});
}

std::string OnnxGraph::Times(const std::string& value, double factor) {
  return factor == 1 ? value : Node("Mul", {value, Scalar(factor)});
}

std::string OnnxGraph::Plus(const std::string& value, double term) {
  return term == 0 ? value : Node("Add", {value, Scalar(term)});
}

std::string OnnxGraph::Reshape(const std::string& value, const ExportShape& from, const ExportShape& to) {
  return from == to ? value : Node("Reshape", {value, Ints("shape", to.extents)});
}

std::string OnnxGraph::ReduceMean(const std::string& value, const std::vector<std::int64_t>& axes, bool keep_axes) {
  return Node("ReduceMean", {value}, {Attribute("axes", axes), Attribute("keepdims", std::int64_t{keep_axes})});
}

std::string OnnxGraph::ToFloat(const std::string& value) {
  return Node("Cast", {value}, {Attribute("to", std::int64_t{onnx::TensorProto::FLOAT})});
}

std::string OnnxGraph::ToInt(const std::string& value) {
  return Node("Cast", {value}, {Attribute("to", std::int64_t{onnx::TensorProto::INT64})});
}

void OnnxGraph::AddInput(const std::string& name, const ExportShape& shape) {
  inputs_.insert(name);
  Describe(name, shape, proto_.add_input());
}

void OnnxGraph::Rename(const std::map<std::string, std::string>& names) {
  const auto rename = [&](std::string* value) {
    if (const auto found = names.find(*value); found != names.end()) *value = found->second;
  };
  for (onnx::NodeProto& node : *proto_.mutable_node()) {
    for (std::string& input : *node.mutable_input()) rename(&input);
    for (std::string& output : *node.mutable_output()) rename(&output);
  }
}

// An input keeps its name, whatever works on it in place: an output of that blob then has the name of its value.
void OnnxGraph::AddOutput(const std::string& blob, const std::string& value, const ExportShape& shape) {
  std::string name = value;
  if (value != blob && !inputs_.contains(blob)) {
    onnx::NodeProto* const node = proto_.add_node();
    node->set_op_type("Identity");
    node->set_name(Unique(blob + "/Identity"));
    node->add_input(value);
    node->add_output(blob);
    name = blob;
  }
  Describe(name, shape, proto_.add_output());
}

void OnnxGraph::NameValues(const std::map<std::string, std::string>& value_of,
                           const std::vector<std::pair<std::string, ExportShape>>& outputs) {
  std::map<std::string, std::string> names;  // by the value's name of before
  const auto name = [&](const std::string& blob) {
    const std::string& value = value_of.at(blob);
    if (made_.contains(value) && !inputs_.contains(blob)) names.try_emplace(value, blob);
  };
  for (const auto& [blob, shape] : outputs) name(blob);
  for (const auto& [blob, value] : value_of) name(blob);
  Rename(names);
  for (const auto& [blob, shape] : outputs) {
    const std::string& value = value_of.at(blob);
    const auto renamed = names.find(value);
    AddOutput(blob, renamed == names.end() ? value : renamed->second, shape);
  }
}

}  // namespace poseidon::caffe
