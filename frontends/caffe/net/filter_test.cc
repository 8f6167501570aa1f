// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/filter.h"

#include <gtest/gtest.h>

#include "frontends/caffe/net/insert_splits.h"
#include "frontends/caffe/proto/read.h"

namespace poseidon::caffe {
namespace {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(ParseText(text, "t", &message).ok());
  return message;
}

bool Holds(const std::string& rule, const std::string& state) {
  return RuleHolds(Parse<NetStateRule>(rule), Parse<NetState>(state));
}

TEST(RuleHolds, ComparesPhaseLevelAndStages) {
  EXPECT_TRUE(Holds("", "phase: TRAIN"));
  EXPECT_TRUE(Holds("phase: TEST", "phase: TEST"));
  EXPECT_FALSE(Holds("phase: TEST", "phase: TRAIN"));
  EXPECT_TRUE(Holds("min_level: 2", "level: 2"));
  EXPECT_FALSE(Holds("min_level: 2", "level: 1"));
  EXPECT_FALSE(Holds("max_level: 2", "level: 3"));
  EXPECT_TRUE(Holds("stage: 'a' stage: 'b'", "stage: 'b' stage: 'a' stage: 'c'"));
  EXPECT_FALSE(Holds("stage: 'a' stage: 'b'", "stage: 'a'"));
  EXPECT_FALSE(Holds("not_stage: 'a'", "stage: 'a'"));
  EXPECT_TRUE(Holds("not_stage: 'a'", "stage: 'b'"));
}

TEST(FilterNet, AnyIncludeRuleAndNoExcludeRule) {
  const auto net = Parse<NetParameter>(R"(
    layer { name: "always" }
    layer { name: "train" include { phase: TRAIN } }
    layer { name: "either" include { phase: TEST stage: "x" } include { phase: TRAIN } }
    layer { name: "not_train" exclude { phase: TRAIN } }
    layer { name: "not_both" exclude { phase: TRAIN stage: "x" } })");
  const auto names = [&](const std::string& state) {
    const auto filtered = FilterNet(net, Parse<NetState>(state));
    std::string text;
    for (const auto& layer : filtered->layer()) text += layer.name() + " ";
    return text;
  };
  EXPECT_EQ(names("phase: TRAIN"), "always train either not_both ");
  EXPECT_EQ(names("phase: TRAIN stage: 'x'"), "always train either ");
  EXPECT_EQ(names("phase: TEST"), "always not_train not_both ");
  EXPECT_EQ(names("phase: TEST stage: 'x'"), "always either not_train not_both ");
}

TEST(FilterNet, RefusesBothKindsOfRules) {
  const auto net = Parse<NetParameter>(
      R"(layer { name: "l" include { phase: TRAIN } exclude { phase: TEST } })");
  EXPECT_EQ(FilterNet(net, NetState()).status().message(),
            "layer 'l' has both include and exclude rules, expected one kind");
}

std::string Split(const std::string& text) {
  const auto split = InsertSplits(Parse<NetParameter>(text));
  if (!split.ok()) return split.status().message();
  std::string out;
  for (const auto& layer : split->layer()) {
    out += layer.name() + ":";
    for (const auto& bottom : layer.bottom()) out += " " + bottom;
    out += " ->";
    for (const auto& top : layer.top()) out += " " + top;
    for (const float weight : layer.loss_weight()) out += std::string(" *") + std::to_string(weight)[0];
    out += "\n";
  }
  return out;
}

TEST(InsertSplits, OneReaderNeedsNone) {
  EXPECT_EQ(Split(R"(layer { name: "a" top: "x" } layer { name: "b" bottom: "x" top: "y" })"),
            "a: -> x\nb: x -> y\n");
}

TEST(InsertSplits, EveryReaderGetsItsOwnTop) {
  EXPECT_EQ(Split(R"(layer { name: "a" top: "x" }
                     layer { name: "b" bottom: "x" top: "y" }
                     layer { name: "c" bottom: "x" bottom: "x" top: "z" })"),
            "a: -> x\n"
            "x_a_0_split: x -> x_a_0_split_0 x_a_0_split_1 x_a_0_split_2\n"
            "b: x_a_0_split_0 -> y\n"
            "c: x_a_0_split_1 x_a_0_split_2 -> z\n");
}

TEST(InsertSplits, AnInPlaceLayerMakesANewVersion) {
  EXPECT_EQ(Split(R"(layer { name: "a" top: "x" }
                     layer { name: "r" bottom: "x" top: "x" }
                     layer { name: "b" bottom: "x" top: "y" }
                     layer { name: "c" bottom: "x" top: "z" })"),
            "a: -> x\n"
            "r: x -> x\n"
            "x_r_0_split: x -> x_r_0_split_0 x_r_0_split_1\n"
            "b: x_r_0_split_0 -> y\n"
            "c: x_r_0_split_1 -> z\n");
}

TEST(InsertSplits, ALossWeightIsAReader) {
  EXPECT_EQ(Split(R"(layer { name: "a" top: "x" loss_weight: 2 }
                     layer { name: "b" bottom: "x" top: "y" })"),
            "a: -> x *0\n"
            "x_a_0_split: x -> x_a_0_split_0 x_a_0_split_1 *2 *0\n"
            "b: x_a_0_split_1 -> y\n");
}

TEST(InsertSplits, NamesABlobThatNobodyMakes) {
  EXPECT_EQ(Split(R"(layer { name: "b" bottom: "x" top: "y" })"),
            "layer 'b' reads blob 'x', which no earlier layer makes");
}

}  // namespace
}  // namespace poseidon::caffe
