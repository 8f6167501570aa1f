// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/insert_splits.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// One top of one layer. An in-place layer makes a new one under the same blob name.
struct Version {
  int readers = 0;
  float loss_weight = 0;  // counts as reader 0 when it is not 0
  int handed_out = 0;     // split tops that have found their reader
};

std::string SplitName(const std::string& layer, const std::string& blob, int top) {
  return blob + "_" + layer + "_" + std::to_string(top) + "_split";
}

// Which version each bottom reads, and how often each is read.
class Readers {
 public:
  Status Count(const NetParameter& net) {
    std::map<std::string, Version*> latest;
    versions_.resize(static_cast<std::size_t>(net.layer_size()));
    sources_.resize(static_cast<std::size_t>(net.layer_size()));
    for (int i = 0; i < net.layer_size(); ++i) {
      const LayerParameter& layer = net.layer(i);
      const auto at = static_cast<std::size_t>(i);
      for (const std::string& blob : layer.bottom()) {
        const auto found = latest.find(blob);
        if (found == latest.end()) {
          return InvalidArgument("layer '" + layer.name() + "' reads blob '" + blob +
                                 "', which no earlier layer makes");
        }
        ++found->second->readers;
        sources_[at].push_back({found->second, makers_.at(found->second)});
      }
      versions_[at].resize(static_cast<std::size_t>(layer.top_size()));
      for (int j = 0; j < layer.top_size(); ++j) {
        Version* version = &At(versions_[at], j);
        if (j < layer.loss_weight_size() && layer.loss_weight(j) != 0) {
          version->loss_weight = layer.loss_weight(j);
          ++version->readers;
        }
        makers_[version] = {layer.name(), j};
        latest[layer.top(j)] = version;
      }
    }
    return OkStatus();
  }

  struct Maker {
    std::string layer;
    int top = 0;
  };
  struct Source {
    Version* version;
    Maker maker;
  };

  std::vector<Source>& SourcesOf(int layer) { return At(sources_, layer); }
  std::vector<Version>& VersionsOf(int layer) { return At(versions_, layer); }

 private:
  std::vector<std::vector<Version>> versions_;  // by layer, by top; never resized after Count
  std::vector<std::vector<Source>> sources_;    // by layer, by bottom
  std::map<const Version*, Maker> makers_;
};

LayerParameter MakeSplit(const std::string& layer, const std::string& blob, int top,
                         const Version& version) {
  LayerParameter split;
  split.set_name(SplitName(layer, blob, top));
  split.set_type("Split");
  split.add_bottom(blob);
  for (int k = 0; k < version.readers; ++k) {
    split.add_top(split.name() + "_" + std::to_string(k));
    if (version.loss_weight != 0) split.add_loss_weight(k == 0 ? version.loss_weight : 0);
  }
  return split;
}

}  // namespace

Result<NetParameter> InsertSplits(const NetParameter& net) {
  Readers readers;
  POSEIDON_RETURN_IF_ERROR(readers.Count(net));
  NetParameter result = net;
  result.clear_layer();
  for (int i = 0; i < net.layer_size(); ++i) {
    LayerParameter* layer = result.add_layer();
    *layer = net.layer(i);
    for (int j = 0; j < layer->bottom_size(); ++j) {
      auto& [version, maker] = At(readers.SourcesOf(i), j);
      if (version->readers < 2) continue;
      if (version->loss_weight != 0 && version->handed_out == 0) version->handed_out = 1;
      *layer->mutable_bottom(j) = SplitName(maker.layer, layer->bottom(j), maker.top) + "_" +
                                  std::to_string(version->handed_out++);
    }
    const std::string name = layer->name();
    const std::vector<std::string> tops(layer->top().begin(), layer->top().end());
    for (std::size_t j = 0; j < tops.size(); ++j) {
      const Version& version = readers.VersionsOf(i)[j];
      if (version.readers < 2) continue;
      // The Split carries the weight now; 0 keeps a loss layer from its default of 1.
      if (version.loss_weight != 0) layer->set_loss_weight(static_cast<int>(j), 0);
      *result.add_layer() = MakeSplit(name, tops[j], static_cast<int>(j), version);
    }
  }
  return result;
}

}  // namespace poseidon::caffe
