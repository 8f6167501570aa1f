// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/export/onnx_export.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "frontends/caffe/export/onnx_layer.h"
#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// Readers have had both since 2020; later sets change no operator that we write but move attributes to inputs.
constexpr std::int64_t kIrVersion = 7;
constexpr std::int64_t kOperatorSet = 13;

// Shapes of blobs, from a net and, where it takes any batch, from the same net with another batch.
class Shapes {
 public:
  Shapes(const Net& net, std::int64_t batch) : net_(net), batch_(batch) {}

  // False where the batch shows in `larger`, with one image more, in another way than as images times a constant along one axis.
  bool CompareWith(const Net& larger) {
    larger_ = &larger;
    for (int i = 0; i < net_.layer_count(); ++i) {
      for (std::size_t j = 0; j < net_.tops(i).size(); ++j) {
        if (!Merged(*net_.tops(i)[j], *larger.tops(i)[j])) return false;
      }
    }
    return true;
  }
  void FixBatch() { larger_ = nullptr; }
  bool any_batch() const { return larger_ != nullptr; }

  ExportShape Top(int layer, std::size_t i) const {
    const Blob& blob = *net_.tops(layer)[i];
    return larger_ == nullptr ? ExportShape{blob.shape(), 0} : *Merged(blob, *larger_->tops(layer)[i]);
  }
  ExportShape Bottom(int layer, std::size_t i) const {
    const Blob& blob = *net_.bottoms(layer)[i];
    return larger_ == nullptr ? ExportShape{blob.shape(), 0} : *Merged(blob, *larger_->bottoms(layer)[i]);
  }

 private:
  std::optional<ExportShape> Merged(const Blob& blob, const Blob& of_larger) const {
    ExportShape shape{blob.shape(), 0};
    const Shape other = of_larger.shape();
    if (other.size() != shape.extents.size()) return std::nullopt;
    for (std::size_t axis = 0; axis < other.size(); ++axis) {
      const std::int64_t per_image = other[axis] - shape.extents[axis];
      if (per_image == 0) continue;
      if (shape.per_image != 0 || per_image * batch_ != shape.extents[axis]) return std::nullopt;
      shape.extents[axis] = kAnyBatch;
      shape.per_image = per_image;
    }
    return shape;
  }

  const Net& net_;
  const std::int64_t batch_;
  const Net* larger_ = nullptr;
};

ExportedLayer Describe(const Net& net, int index, const Shapes& shapes, const std::map<std::string, std::string>& value_of) {
  const Layer& made = net.layer(index);
  ExportedLayer layer{.param = made.param(), .bottoms = {}, .bottom_shapes = {}, .top_shapes = {}, .blobs = {}};
  for (std::size_t i = 0; i < net.bottoms(index).size(); ++i) {
    layer.bottoms.push_back(value_of.at(net.bottom_name(index, i)));
    layer.bottom_shapes.push_back(shapes.Bottom(index, i));
  }
  for (std::size_t i = 0; i < net.tops(index).size(); ++i) layer.top_shapes.push_back(shapes.Top(index, i));
  for (const Blob& blob : made.blobs()) layer.blobs.push_back({blob.shape(), NumbersOf(blob.data)});
  return layer;
}

// The values of all blobs in turn: a blob that layers work on in place is several.
class Walk {
 public:
  Walk(const Net& net, const Shapes& shapes) : net_(net), shapes_(shapes), graph_(Kept(net)) {}

  Status Run(const DeployNet& deploy) {
    for (int i = 0; i < net_.layer_count(); ++i) {
      const LayerParameter& param = net_.layer(i).param();
      POSEIDON_RETURN_IF_ERROR(Add(i).WithPrefix("layer '" + param.name() + "' (" + param.type() + ")"));
    }
    std::vector<std::pair<std::string, ExportShape>> outputs;
    for (const std::string& blob : deploy.outputs) outputs.emplace_back(blob, shape_of_.at(blob));
    graph_.NameValues(value_of_, outputs);
    graph_.proto().set_name(net_.name().empty() ? "net" : net_.name());
    return OkStatus();
  }

  bool fixed_batch_required() const { return graph_.fixed_batch_required(); }
  onnx::GraphProto& graph() { return graph_.proto(); }

 private:
  static std::set<std::string> Kept(const Net& net) { return {net.blob_names().begin(), net.blob_names().end()}; }

  void Set(int layer, std::size_t top, const std::string& value) {
    const std::string& name = net_.top_name(layer, top);
    value_of_[name] = value;
    shape_of_[name] = shapes_.Top(layer, top);
  }

  Status Add(int index) {
    const LayerParameter& param = net_.layer(index).param();
    graph_.BeginLayer(net_.UniqueName(index));
    if (param.type() == "Input") {
      for (std::size_t i = 0; i < net_.tops(index).size(); ++i) {
        graph_.AddInput(net_.top_name(index, i), shapes_.Top(index, i));
        Set(index, i, net_.top_name(index, i));
      }
      return OkStatus();
    }
    const ExportedLayer layer = Describe(net_, index, shapes_, value_of_);
    for (const ExportShape& shape : layer.top_shapes) {
      const bool is_empty = std::find(shape.extents.begin(), shape.extents.end(), 0) != shape.extents.end();
      if (is_empty) return InvalidArgument("makes a blob without numbers");
    }
    POSEIDON_ASSIGN_OR_RETURN(const Values tops, FindOnnxConverter(param.type())(layer, graph_));
    for (std::size_t i = 0; i < tops.size(); ++i) Set(index, i, tops[i]);
    return OkStatus();
  }

  const Net& net_;
  const Shapes& shapes_;
  OnnxGraph graph_;
  std::map<std::string, std::string> value_of_;     // by blob, as far as the walk has come
  std::map<std::string, ExportShape> shape_of_;
};

// The net with one image more, on the same weights; none where a layer does not take it.
std::unique_ptr<Net> WithOneImageMore(const Net& net, const DeployNet& deploy) {
  NetState state;
  state.set_phase(TEST);
  NetOptions options = net.options();
  options.parameters_from = &net;
  Result<std::unique_ptr<Net>> larger = Net::Create(WithBatch(deploy, BatchOf(deploy) + 1), state, MakeLayer, options);
  return larger.ok() ? *std::move(larger) : nullptr;
}

}  // namespace

Result<onnx::ModelProto> ToOnnx(const Net& net, const DeployNet& deploy, bool any_batch, const std::string& version) {
  POSEIDON_RETURN_IF_ERROR(CheckExported(deploy.net, WhyNotOnnx));
  Shapes shapes(net, BatchOf(deploy));
  const std::unique_ptr<Net> larger = any_batch && BatchOf(deploy) > 0 ? WithOneImageMore(net, deploy) : nullptr;
  if (larger != nullptr && !shapes.CompareWith(*larger)) shapes.FixBatch();
  auto walk = std::make_unique<Walk>(net, shapes);
  POSEIDON_RETURN_IF_ERROR(walk->Run(deploy));
  if (shapes.any_batch() && walk->fixed_batch_required()) {
    shapes.FixBatch();
    walk = std::make_unique<Walk>(net, shapes);
    POSEIDON_RETURN_IF_ERROR(walk->Run(deploy));
  }
  onnx::ModelProto model;
  model.set_ir_version(kIrVersion);
  model.set_producer_name("poseidon");
  model.set_producer_version(version);
  model.add_opset_import()->set_version(kOperatorSet);
  model.mutable_graph()->Swap(&walk->graph());
  return model;
}

}  // namespace poseidon::caffe
