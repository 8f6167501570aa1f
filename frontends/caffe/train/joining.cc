// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/joining.h"

#include <map>
#include <string_view>

#include "poseidon/plan/joining.h"

namespace poseidon::caffe {

Result<std::vector<std::vector<std::size_t>>> GroupsOf(std::span<const plan::LayerSpec> layers,
                                                       const JoiningRule& rule) {
  std::map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < layers.size(); ++i) places[layers[i].name] = i;

  std::vector<std::vector<std::size_t>> groups(layers.size());  // by the place of their first layer
  std::set<std::string, std::less<>> decided = rule.apart;
  for (const std::vector<std::string>& names : rule.together) {
    std::vector<std::size_t> group;
    for (const std::string& name : names) {
      const auto found = places.find(name);
      if (found == places.end()) {
        return InvalidArgument(rule.said_by + " joins layer '" + name +
                               "', which is not among the layers that are trained: " + plan::NamesOf(layers));
      }
      if (rule.apart.contains(name)) continue;
      if (!group.empty() && found->second <= group.back()) {
        return InvalidArgument(rule.said_by + " joins layer '" + name + "' behind layer '" +
                               layers[group.back()].name + "', which comes later in the net");
      }
      group.push_back(found->second);
      decided.insert(name);
    }
    if (!group.empty()) groups[group.front()] = std::move(group);
  }

  const std::vector<std::size_t> firsts = plan::JoinSmall(layers, decided);
  std::set<std::size_t> pinned;
  for (const std::vector<std::size_t>& group : groups) pinned.insert(group.begin(), group.end());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!pinned.contains(i)) groups[firsts[i]].push_back(i);
  }
  std::erase_if(groups, [](const std::vector<std::size_t>& group) { return group.empty(); });
  return groups;
}

}  // namespace poseidon::caffe
