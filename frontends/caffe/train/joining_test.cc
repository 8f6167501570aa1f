// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/joining.h"

#include <gmock/gmock.h>

#include "poseidon/plan/joining.h"

namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;
using Groups = std::vector<std::vector<std::size_t>>;

plan::LayerSpec Of(const std::string& name, std::uint64_t bytes) { return {.name = name, .elements = bytes / 4}; }

// A small one, a fully connected one, a large one, three small ones.
std::vector<plan::LayerSpec> Layers() {
  std::vector<plan::LayerSpec> layers = {Of("a", 12), Of("fc", 4 * 65 * 64), Of("large", 2 * plan::kMostJoinedBytes),
                                         Of("b", 12), Of("c", 12),  Of("d", 12)};
  layers[1].factors = plan::FactorShape{.outputs = 65, .inputs = 64};
  return layers;
}

Groups GroupsWith(const JoiningRule& rule) {
  Result<Groups> groups = GroupsOf(Layers(), rule);
  EXPECT_TRUE(groups.ok()) << groups.status().message();
  return *groups;
}

std::string Refusal(const JoiningRule& rule) { return GroupsOf(Layers(), rule).status().message(); }

TEST(Groups, SmallLayersJoinAsTheSessionDecides) {
  EXPECT_THAT(GroupsWith({}), ElementsAre(ElementsAre(0, 3, 4, 5), ElementsAre(1), ElementsAre(2)));
}

TEST(Groups, WhatIsNamedStaysApart) {
  EXPECT_THAT(GroupsWith({.apart = {"a", "c", "fc"}}),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3, 5), ElementsAre(4)));
  EXPECT_THAT(GroupsWith({.apart = {"a", "b", "c", "d", "fc", "large"}}).size(), 6U);
}

TEST(Groups, APinnedPlanJoinsAsItDid) {
  EXPECT_THAT(GroupsWith({.together = {{"a", "d"}, {"b", "c"}}}),
              ElementsAre(ElementsAre(0, 5), ElementsAre(1), ElementsAre(2), ElementsAre(3, 4)));
  // Whatever the sizes are now; what it does not know joins by itself.
  EXPECT_THAT(GroupsWith({.together = {{"fc", "large"}}}), ElementsAre(ElementsAre(0, 3, 4, 5), ElementsAre(1, 2)));
}

TEST(Groups, WhatIsNamedLeavesAPinnedGroup) {
  EXPECT_THAT(GroupsWith({.apart = {"a"}, .together = {{"a", "b", "d"}}}),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3, 5), ElementsAre(4)));
  EXPECT_THAT(GroupsWith({.apart = {"a", "b"}, .together = {{"a", "b"}}}),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3), ElementsAre(4, 5)));
}

TEST(Groups, APlanOfAnotherNetIsRefused) {
  EXPECT_EQ(Refusal({.together = {{"a", "e"}}, .said_by = "plan file p"}),
            "plan file p joins layer 'e', which is not among the layers that are trained: a, fc, large, b, c, d");
  EXPECT_EQ(Refusal({.together = {{"b", "a"}}, .said_by = "plan file p"}),
            "plan file p joins layer 'a' behind layer 'b', which comes later in the net");
}

}  // namespace
}  // namespace poseidon::caffe
