// SPDX-License-Identifier: Apache-2.0
#include "frontends/plan_file/plan_json.h"

#include <fstream>
#include <set>
#include <sstream>

namespace poseidon::plan_file {

using nlohmann::json;

namespace {

// The names of a joined layer's entry; empty where they are not names, or not those of several layers, `first` first.
std::vector<std::string> JoinedOf(const json& names, const std::string& first) {
  std::vector<std::string> joined;
  if (!names.is_array() || names.size() < 2 || names.front() != first) return {};
  for (const json& name : names) {
    if (!name.is_string()) return {};
    joined.push_back(name.get<std::string>());
  }
  return joined;
}

// The library's words behind its "[json.exception.parse_error.101] ".
std::string WithoutKind(const std::string& words) {
  const auto end = words.find("] ");
  return words.starts_with("[json.") && end != std::string::npos ? words.substr(end + 2) : words;
}

}  // namespace

json PlanToJson(const plan::Plan& plan, const std::vector<plan::LayerSpec>& layers,
                const std::vector<std::vector<std::string>>& members) {
  json list = json::array();
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const plan::LayerPlan& layer = plan.layers[i];
    list.push_back({{"layer", layers[i].name},
                    {"shape", layers[i].shape},
                    {"scheme", plan::NameOf(layer.scheme)},
                    {"forced", layer.forced},
                    {"reason", layer.reason},
                    {"rows", layer.measured.rows},
                    {"forward_seconds", layer.measured.forward_seconds},
                    {"backward_seconds", layer.measured.backward_seconds},
                    {"predicted_bytes", {{"sent", layer.bytes_sent}, {"received", layer.bytes_received}}},
                    {"send_position", layer.send_position},
                    {"predicted_seconds", layer.transfer_seconds + layer.rebuild_seconds}});
    if (!members.empty() && members[i].size() > 1) list.back()["joined"] = members[i];
  }
  return {{"format", 1},
          {"policy", plan::NameOf(plan.policy)},
          {"switch_step", plan.switch_step.value()},
          {"workers", plan.cluster.workers},
          {"servers", plan.cluster.servers},
          {"host_of_rank", plan.cluster.host_of_rank},
          {"lanes", plan.cluster.lanes},
          {"bandwidth_bytes_per_second", plan.cluster.bandwidth},
          {"latency_seconds", plan.cluster.latency},
          {"rebuild_flops", plan.cluster.rebuild_flops},
          {"step_seconds", plan.step_seconds},
          {"compute_seconds", plan.compute_seconds},
          {"wfbp_seconds", plan.wfbp_seconds},
          {"dense_step_seconds", plan.dense_step_seconds},
          {"single_worker_seconds", plan.single_worker_seconds},
          {"speedup", plan.speedup},
          {"layers", std::move(list)}};
}

std::string PlanText(const json& plan) { return plan.dump(1, ' ', false, json::error_handler_t::replace) + "\n"; }

Result<PinnedPlan> ReadPlan(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFound("plan file " + path + " cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  return ParsePlan(text.str(), "plan file " + path);
}

Result<PinnedPlan> ParsePlan(const std::string& text, const std::string& name) {
  json document;
  try {
    document = json::parse(text);
  } catch (const json::exception& error) {
    return InvalidArgument(name + " is not JSON: " + WithoutKind(error.what()));
  }
  if (!document.is_object() || !document.contains("layers") || !document["layers"].is_array()) {
    return InvalidArgument(name + " is not a plan: no list 'layers' in it");
  }
  PinnedPlan plan;
  if (document.contains("workers") && document["workers"].is_number_unsigned()) {
    plan.workers = document["workers"].get<std::uint64_t>();
  }
  std::set<std::string> known;
  for (const json& layer : document["layers"]) {
    const bool complete = layer.is_object() && layer.contains("layer") &&
                          layer["layer"].is_string() && layer.contains("scheme") &&
                          layer["scheme"].is_string();
    const auto scheme = complete ? plan::ParseScheme(layer["scheme"].get<std::string>())
                                 : std::nullopt;
    if (!scheme) {
      return InvalidArgument(name + ": entry " + std::to_string(plan.schemes.size()) +
                             " has no 'layer' with a 'scheme' of " + plan::SchemeNames());
    }
    const std::string first = layer["layer"].get<std::string>();
    plan.schemes[first] = *scheme;
    std::vector<std::string> names = {first};
    if (layer.contains("joined")) {
      names = JoinedOf(layer["joined"], first);
      if (names.empty()) {
        return InvalidArgument(name + ": the 'joined' of layer '" + first +
                               "' is not a list of several layers that begins with it");
      }
      plan.joined.push_back(names);
    }
    for (const std::string& one : names) {
      if (!known.insert(one).second) return InvalidArgument(name + " names layer '" + one + "' twice");
    }
  }
  return plan;
}

}  // namespace poseidon::plan_file
