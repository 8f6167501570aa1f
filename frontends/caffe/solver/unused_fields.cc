// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/unused_fields.h"

#include <set>
#include <utility>

namespace poseidon::caffe {
namespace {

struct UnusedField {
  bool (*is_set)(const LayerParameter& layer);
  const char* words;
};

constexpr UnusedField kLayerFields[] = {
    {[](const LayerParameter& layer) { return layer.data_param().force_encoded_color(); },
     "data_param.force_encoded_color is not looked at, as in Caffe 1.0; transform_param { force_color: true } makes three channels"},
    {[](const LayerParameter& layer) { return layer.convolution_param().force_nd_im2col(); },
     "convolution_param.force_nd_im2col changes nothing; results do not depend on it"},
    {[](const LayerParameter& layer) { return layer.recurrent_param().debug_info(); },
     "recurrent_param.debug_info prints nothing, as there is no net of steps inside the layer; debug_info of the solver prints the "
     "layer itself"},
};

// "layer 'a'", "layer 'a' and 2 others", where some set the field.
std::string WhoSets(const UnusedField& field, const SolverNets& nets) {
  std::set<std::string> names;
  std::string first;
  const auto look = [&](const NetParameter& net) {
    for (const LayerParameter& layer : net.layer()) {
      if (field.is_set(layer) && names.insert(layer.name()).second && names.size() == 1) first = layer.name();
    }
  };
  look(nets.train.net);
  for (const SolverNets::Part& test : nets.tests) look(test.net);
  if (names.empty()) return "";
  std::string words = "layer '" + first + "'";
  if (names.size() > 1) words += " and " + std::to_string(names.size() - 1) + (names.size() == 2 ? " other" : " others");
  return words;
}

}  // namespace

std::vector<std::string> UnusedFields(const SolverParameter& solver, const SolverNets& nets) {
  std::vector<std::string> sentences;
  if (solver.has_device_id()) {
    sentences.push_back("device_id: " + std::to_string(solver.device_id()) + " is not looked at; this trainer computes on the CPU");
  }
  if (!solver.layer_wise_reduce()) {
    sentences.emplace_back("layer_wise_reduce: false is not followed; the gradient of a layer is sent as soon as it is computed");
  }
  for (const UnusedField& field : kLayerFields) {
    if (const std::string who = WhoSets(field, nets); !who.empty()) sentences.push_back(who + ": " + field.words);
  }
  return sentences;
}

}  // namespace poseidon::caffe
