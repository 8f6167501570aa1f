// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/filter.h"

#include <algorithm>
#include <string>

namespace poseidon::caffe {
namespace {

bool HasStage(const NetState& state, const std::string& stage) {
  return std::find(state.stage().begin(), state.stage().end(), stage) != state.stage().end();
}

bool Belongs(const LayerParameter& layer, const NetState& state) {
  const auto holds = [&](const NetStateRule& rule) { return RuleHolds(rule, state); };
  if (layer.include_size() > 0) {
    return std::any_of(layer.include().begin(), layer.include().end(), holds);
  }
  return std::none_of(layer.exclude().begin(), layer.exclude().end(), holds);
}

}  // namespace

bool RuleHolds(const NetStateRule& rule, const NetState& state) {
  if (rule.has_phase() && rule.phase() != state.phase()) return false;
  if (rule.has_min_level() && state.level() < rule.min_level()) return false;
  if (rule.has_max_level() && state.level() > rule.max_level()) return false;
  const auto present = [&](const std::string& stage) { return HasStage(state, stage); };
  return std::all_of(rule.stage().begin(), rule.stage().end(), present) &&
         std::none_of(rule.not_stage().begin(), rule.not_stage().end(), present);
}

Result<NetParameter> FilterNet(const NetParameter& net, const NetState& state) {
  NetParameter filtered = net;
  filtered.clear_layer();
  *filtered.mutable_state() = state;
  for (const LayerParameter& layer : net.layer()) {
    if (layer.include_size() > 0 && layer.exclude_size() > 0) {
      return InvalidArgument("layer '" + layer.name() +
                             "' has both include and exclude rules, expected one kind");
    }
    if (Belongs(layer, state)) *filtered.add_layer() = layer;
  }
  return filtered;
}

}  // namespace poseidon::caffe
