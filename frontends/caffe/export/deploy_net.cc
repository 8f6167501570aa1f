// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/export/deploy_net.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/net/filter.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

std::string Named(const LayerParameter& layer) { return "layer '" + layer.name() + "' (" + layer.type() + ")"; }

// Layers that make what they make of nothing: data of a run, which whoever uses the file brings.
bool MakesInputs(const LayerParameter& layer) { return layer.bottom_size() == 0 && layer.type() != "Parameter"; }

// Layers that measure a net or store what it makes.
bool Measures(const LayerParameter& layer) {
  return layer.type().ends_with("Loss") || layer.type().ends_with("LossOHEM") || layer.type() == "Accuracy" || layer.type() == "HDF5Output";
}

// Whether a bottom of such a layer is what the net computes, rather than a label or a weight of a sample.
bool IsComputed(const LayerParameter& layer, int bottom) {
  const bool equals = layer.type() == "EuclideanLoss" || layer.type() == "ContrastiveLoss" || layer.type() == "HDF5Output";
  return bottom == 0 || (equals && !(layer.type() == "ContrastiveLoss" && bottom == 2));
}

// A SoftmaxWithLoss, or SoftmaxWithLossOHEM, whose second top somebody may read.
LayerParameter SoftmaxOf(const LayerParameter& loss) {
  LayerParameter softmax;
  softmax.set_name(loss.name());
  softmax.set_type("Softmax");
  softmax.add_bottom(loss.bottom(0));
  softmax.add_top(loss.top(1));
  if (loss.has_softmax_param()) *softmax.mutable_softmax_param() = loss.softmax_param();
  return softmax;
}

// The layers that stay, and the blobs that none of them reads.
struct Parts {
  std::vector<LayerParameter> layers;
  std::vector<std::string> unread;  // in the order in which they are made; no data, and no labels
};

Parts WithoutMeasures(const NetParameter& net) {
  Parts parts;
  const auto read = [&](const std::string& blob) { std::erase(parts.unread, blob); };
  for (const LayerParameter& layer : net.layer()) {
    if (layer.type().starts_with("SoftmaxWithLoss") && layer.top_size() >= 2) {
      parts.layers.push_back(SoftmaxOf(layer));
    } else if (!Measures(layer)) {
      parts.layers.push_back(layer);
    } else {
      for (int i = 0; i < layer.bottom_size(); ++i) {
        if (!IsComputed(layer, i)) read(layer.bottom(i));
      }
      continue;
    }
    const LayerParameter& kept = parts.layers.back();
    std::for_each(layer.bottom().begin(), layer.bottom().end(), read);
    std::for_each(kept.top().begin(), kept.top().end(), read);  // made anew
    if (!MakesInputs(kept)) parts.unread.insert(parts.unread.end(), kept.top().begin(), kept.top().end());
  }
  return parts;
}

// Only what the outputs need of `layers`; input layers keep the tops that somebody reads.
std::vector<LayerParameter> NeededFor(const std::vector<std::string>& outputs, const std::vector<LayerParameter>& layers) {
  std::set<std::string> needed(outputs.begin(), outputs.end());
  std::vector<LayerParameter> kept;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    const auto is_needed = [&](const std::string& top) { return needed.contains(top); };
    if (std::none_of(layer->top().begin(), layer->top().end(), is_needed)) continue;
    for (const std::string& top : layer->top()) needed.erase(top);
    needed.insert(layer->bottom().begin(), layer->bottom().end());
    kept.push_back(*layer);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

Status CheckOutputs(const std::vector<std::string>& outputs, const std::vector<LayerParameter>& layers) {
  std::set<std::string> made;
  for (const LayerParameter& layer : layers) {
    if (!MakesInputs(layer)) made.insert(layer.top().begin(), layer.top().end());
  }
  for (const std::string& output : outputs) {
    if (!made.contains(output)) return InvalidArgument("no layer of the net in the TEST phase computes a blob '" + output + "'");
  }
  if (outputs.empty()) return InvalidArgument("the net computes nothing in the TEST phase");
  return OkStatus();
}

// The shapes of a data layer's tops, from the layer itself.
Result<std::vector<Shape>> AskLayer(const LayerParameter& param) {
  std::vector<Shape> shapes;
  const PassContext pass;
  const Status asked = RunOnEngine([&]() -> Status {
    POSEIDON_ASSIGN_OR_RETURN(const std::unique_ptr<Layer> layer, MakeLayer(param, {.phase = TEST, .pass = &pass}));
    std::vector<Blob> tops(static_cast<std::size_t>(param.top_size()));
    Blobs handles;
    for (Blob& top : tops) handles.push_back(&top);
    POSEIDON_RETURN_IF_ERROR(layer->SetUp({}, handles));
    POSEIDON_RETURN_IF_ERROR(layer->Reshape({}, handles));
    for (const Blob& top : tops) shapes.push_back(top.shape());
    return OkStatus();
  });
  if (asked.ok()) return shapes;
  return asked.WithPrefix(Named(param));
}

// The Input layer that stands for `layer`, with those of its tops that `read` has.
Result<LayerParameter> InputFor(const LayerParameter& layer, const std::set<std::string>& read,
                                const std::map<std::string, std::vector<std::int64_t>>& given) {
  LayerParameter input;
  input.set_name(layer.name());
  input.set_type("Input");
  std::vector<Shape> asked;
  for (int i = 0; i < layer.top_size(); ++i) {
    const std::string& top = layer.top(i);
    if (!read.contains(top)) continue;
    const auto found = given.find(top);
    if (found == given.end() && asked.empty()) {
      Result<std::vector<Shape>> shapes = AskLayer(layer);
      if (!shapes.ok()) {
        return Status(shapes.status().code(), shapes.status().message() + "; --shape " + top + "=N,C,H,W says its shape without that");
      }
      asked = *std::move(shapes);
    }
    input.add_top(top);
    BlobShape* const shape = input.mutable_input_param()->add_shape();
    const Shape& extents = found == given.end() ? At(asked, i) : found->second;
    shape->mutable_dim()->Add(extents.begin(), extents.end());
  }
  return input;
}

}  // namespace

Status CheckExported(const NetParameter& net, const WhyNot& why_not) {
  std::vector<std::pair<std::string, std::vector<std::string>>> kinds;  // what, and the layers of that kind
  for (const LayerParameter& layer : net.layer()) {
    const std::optional<std::string> why = layer.type() == "Input" ? std::nullopt : why_not(layer);
    if (!why.has_value()) continue;
    const std::string what = layer.type() + *why;
    auto same = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.first == what; });
    if (same == kinds.end()) same = kinds.emplace(same, what, std::vector<std::string>());
    same->second.push_back("'" + layer.name() + "'");
  }
  std::string text;
  for (const auto& [what, names] : kinds) {
    text += (text.empty() ? "" : "; ") + what + (names.size() == 1 ? " (layer " : " (layers ");
    for (std::size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : ", ") + names[i];
    text += ")";
  }
  if (text.empty()) return OkStatus();
  return Unimplemented("cannot export " + text + "; --output NAME ends the net at a blob before such a layer");
}

Result<DeployNet> MakeDeployNet(const NetParameter& net, const DeployOptions& options) {
  POSEIDON_ASSIGN_OR_RETURN(const NetParameter filtered, FilterNet(net, options.state));
  const Parts parts = WithoutMeasures(filtered);
  DeployNet deploy;
  deploy.outputs = options.outputs.empty() ? parts.unread : options.outputs;
  POSEIDON_RETURN_IF_ERROR(CheckOutputs(deploy.outputs, parts.layers));
  const std::vector<LayerParameter> needed = NeededFor(deploy.outputs, parts.layers);
  std::set<std::string> read;
  for (const LayerParameter& layer : needed) read.insert(layer.bottom().begin(), layer.bottom().end());
  deploy.net.set_name(net.name());
  for (const LayerParameter& layer : needed) {
    if (!MakesInputs(layer)) {
      *deploy.net.add_layer() = layer;
      continue;
    }
    POSEIDON_ASSIGN_OR_RETURN(*deploy.net.add_layer(), InputFor(layer, read, options.shapes));
    const LayerParameter& input = deploy.net.layer().Get(deploy.net.layer_size() - 1);
    deploy.inputs.insert(deploy.inputs.end(), input.top().begin(), input.top().end());
  }
  for (const auto& [name, shape] : options.shapes) {
    if (std::find(deploy.inputs.begin(), deploy.inputs.end(), name) == deploy.inputs.end()) {
      return InvalidArgument("the net has no input '" + name + "' that is read, for which --shape says a shape");
    }
  }
  if (options.why_not) POSEIDON_RETURN_IF_ERROR(CheckExported(deploy.net, options.why_not));
  if (options.batch > 0) deploy.net = WithBatch(deploy, options.batch);
  return deploy;
}

std::int64_t BatchOf(const DeployNet& deploy) {
  for (const LayerParameter& layer : deploy.net.layer()) {
    if (layer.type() == "Input") return layer.input_param().shape(0).dim_size() == 0 ? 0 : layer.input_param().shape(0).dim(0);
  }
  return 0;
}

NetParameter WithBatch(const DeployNet& deploy, std::int64_t batch) {
  const std::int64_t before = BatchOf(deploy);
  NetParameter net = deploy.net;
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (layer.type() != "Input") continue;
    for (BlobShape& shape : *layer.mutable_input_param()->mutable_shape()) {
      if (shape.dim_size() > 0 && shape.dim(0) == before) shape.set_dim(0, batch);
    }
  }
  return net;
}

}  // namespace poseidon::caffe
