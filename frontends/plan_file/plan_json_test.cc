// SPDX-License-Identifier: Apache-2.0
#include "frontends/plan_file/plan_json.h"

#include <gmock/gmock.h>

namespace poseidon::plan_file {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(PlanJson, JoinedLayersComeBack) {
  const std::vector<plan::LayerSpec> layers = {{.name = "a", .elements = 9}, {.name = "b", .elements = 4}};
  plan::Plan plan;
  plan.cluster.workers = 2;
  plan.layers.resize(2);
  const std::string text = PlanToJson(plan, layers, {{"a", "c", "d"}, {"b"}}).dump();
  const Result<PinnedPlan> pinned = ParsePlan(text, "p");
  ASSERT_TRUE(pinned.ok()) << pinned.status().message();
  EXPECT_EQ(pinned->workers, 2U);
  EXPECT_THAT(pinned->schemes, ElementsAre(Pair("a", plan::Scheme::kKeyValue), Pair("b", plan::Scheme::kKeyValue)));
  EXPECT_THAT(pinned->joined, ElementsAre(ElementsAre("a", "c", "d")));
}

TEST(PlanJson, APlanFromBeforeNamesLayersSingly) {
  const Result<PinnedPlan> pinned = ParsePlan(R"({"layers": [{"layer": "a", "scheme": "sfb"}]})", "p");
  ASSERT_TRUE(pinned.ok()) << pinned.status().message();
  EXPECT_THAT(pinned->schemes, ElementsAre(Pair("a", plan::Scheme::kFactorBroadcast)));
  EXPECT_TRUE(pinned->joined.empty());
}

TEST(PlanJson, WhatIsNoPlanIsRefusedInOneSentence) {
  const auto refusal = [](const std::string& layers) {
    return ParsePlan("{\"layers\": [" + layers + "]}", "p").status().message();
  };
  const std::string list = "p: the 'joined' of layer 'a' is not a list of several layers that begins with it";
  for (const char* joined : {"7", "\"a\"", "[]", "[\"a\"]", "[\"b\", \"a\"]", "[\"a\", 3]", "{\"a\": \"b\"}", "null"}) {
    EXPECT_EQ(refusal(R"({"layer": "a", "scheme": "kv", "joined": )" + std::string(joined) + "}"), list) << joined;
  }
  EXPECT_EQ(refusal(R"({"layer": "a", "scheme": "kv", "joined": ["a", "b"]}, {"layer": "b", "scheme": "kv"})"),
            "p names layer 'b' twice");
  EXPECT_EQ(refusal(R"({"layer": "a", "scheme": "kv", "joined": ["a", "b", "b"]})"), "p names layer 'b' twice");
  EXPECT_EQ(refusal(R"({"layer": "a"})"), "p: entry 0 has no 'layer' with a 'scheme' of " + plan::SchemeNames());
}

TEST(PlanJson, WhatIsNoJsonIsSaid) {
  EXPECT_EQ(ParsePlan("{\"layers\": 1e999}", "p").status().message(),
            "p is not JSON: number overflow parsing '1e999'");
  EXPECT_EQ(ParsePlan("{\"layers\"", "p").status().message().find("p is not JSON: parse error at line 1, column 10: "), 0u);
  EXPECT_EQ(ParsePlan(std::string(100000, '['), "p").status().message().find("p is not JSON: parse error at line 1, "), 0u);
  EXPECT_EQ(ParsePlan("{\"layers\": 3}", "p").status().message(), "p is not a plan: no list 'layers' in it");
}

TEST(PlanJson, NamesThatAreNoUtf8AreWritten) {
  EXPECT_NE(PlanText({{"layer", "a\xff"}}).find("a\xef\xbf\xbd"), std::string::npos);
}

}  // namespace
}  // namespace poseidon::plan_file
