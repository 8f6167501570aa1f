// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/export/net_tensors.h"

#include <charconv>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "frontends/caffe/export/safetensors.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// The number behind the last dot, of at most three digits; none where there is none.
std::optional<int> IndexOf(const std::string& name, std::size_t dot) {
  if (dot == std::string::npos || dot == 0 || name.size() - dot > 4) return std::nullopt;
  int index = 0;
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + dot + 1, end, index);
  if (read.ec != std::errc() || read.ptr != end || index < 0) return std::nullopt;
  return index;
}

void ToBlob(const NamedTensor& tensor, BlobProto* blob) {
  blob->mutable_shape()->mutable_dim()->Add(tensor.shape.begin(), tensor.shape.end());
  blob->mutable_data()->Add(tensor.numbers.begin(), tensor.numbers.end());
}

}  // namespace

Status WriteNetTensors(const Net& net, const std::string& path) {
  std::vector<TensorView> tensors;
  for (int i = 0; i < net.layer_count(); ++i) {
    const std::vector<Blob>& blobs = net.layer(i).blobs();
    for (std::size_t j = 0; j < blobs.size(); ++j) {
      tensors.push_back({net.UniqueName(i) + "." + std::to_string(j), blobs[j].shape(), NumbersOf(blobs[j].data)});
    }
  }
  return WriteSafetensors(tensors, net.name(), path);
}

Result<NetParameter> ReadNetTensors(const Net& net, const std::string& path) {
  POSEIDON_ASSIGN_OR_RETURN(const std::vector<NamedTensor> tensors, ReadSafetensors(path));
  std::map<std::string, std::map<int, const NamedTensor*>> layers;  // by unique name
  for (const NamedTensor& tensor : tensors) {
    const std::size_t dot = tensor.name.rfind('.');
    const std::optional<int> index = IndexOf(tensor.name, dot);
    if (!index) return InvalidArgument(path + " has a tensor '" + tensor.name + "', expected LAYER.INDEX, such as conv1.0");
    layers[tensor.name.substr(0, dot)][*index] = &tensor;
  }
  NetParameter model;
  const auto add = [&](const std::string& unique, const std::string& name) -> Status {
    const auto found = layers.find(unique);
    if (found == layers.end()) return OkStatus();
    LayerParameter* const layer = model.add_layer();
    layer->set_name(name);
    for (const auto& [index, tensor] : found->second) {
      if (index != layer->blobs_size()) {
        const std::string missing = unique + "." + std::to_string(layer->blobs_size());
        return InvalidArgument(path + " has a tensor '" + tensor->name + "', but no '" + missing + "'");
      }
      ToBlob(*tensor, layer->add_blobs());
    }
    layers.erase(found);
    return OkStatus();
  };
  for (int i = 0; i < net.layer_count(); ++i) POSEIDON_RETURN_IF_ERROR(add(net.UniqueName(i), net.layer(i).name()));
  while (!layers.empty()) {
    const std::string other = layers.begin()->first;
    POSEIDON_RETURN_IF_ERROR(add(other, other));
  }
  return model;
}

}  // namespace poseidon::caffe
