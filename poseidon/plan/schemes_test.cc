// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/schemes.h"

#include <gtest/gtest.h>

#include <set>

namespace poseidon::plan {
namespace {

const LayerSpec kConvolution{.name = "conv", .elements = 520};
const LayerSpec kFullyConnected{
    .name = "fc", .elements = 6, .factors = FactorShape{.outputs = 2, .inputs = 3}};
const LayerSpec kTable{
    .name = "words", .elements = 6, .factors = FactorShape{.outputs = 2, .inputs = 3, .table = true}};

TEST(Schemes, HaveNamesOfTheirOwnAndAreFoundByThem) {
  std::set<std::string_view> names;
  for (const SchemeRow& row : Schemes()) {
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_LT(row.name.size(), 16u);  // as poseidon_layer_plan holds it
    EXPECT_TRUE(IsValid(row.scheme));
    EXPECT_EQ(NameOf(row.scheme), row.name);
    EXPECT_EQ(ParseScheme(row.name), row.scheme);
    EXPECT_EQ(TakesFactors(row.scheme), row.takes_factors);
    EXPECT_EQ(&RowOf(row.scheme), &Schemes()[IndexOf(row.scheme)]);
  }
  EXPECT_EQ(ParseScheme("fast"), std::nullopt);
  for (const int number : {0, 200}) {
    EXPECT_FALSE(IsValid(static_cast<Scheme>(number)));
    EXPECT_EQ(NameOf(static_cast<Scheme>(number)), "?");
  }
}

TEST(Schemes, AreListedForPeople) {
  EXPECT_EQ(SchemeNames(), "kv, sfb or fsc");
  EXPECT_EQ(SchemeNames("LAYER="), "LAYER=kv, LAYER=sfb or LAYER=fsc");
  EXPECT_EQ(SchemeNamesFor(kTable), "sfb");
}

TEST(Schemes, ApplyToTheLayersWhoseGradientTheyCanCarry) {
  EXPECT_EQ(SchemesFor(kConvolution), std::vector<Scheme>({Scheme::kKeyValue}));
  EXPECT_EQ(SchemesFor(kFullyConnected),
            std::vector<Scheme>({Scheme::kKeyValue, Scheme::kFactorBroadcast, Scheme::kFactorScatter}));
  EXPECT_EQ(SchemesFor(kTable), std::vector<Scheme>({Scheme::kFactorBroadcast}));
}

// A worker's sum of a layer needs nothing but what the row says: whole gradients no factors, and the other way round.
TEST(Schemes, OnlyThoseOfFactorsMultiply) {
  for (const SchemeRow& row : Schemes()) {
    const SchemeInput input{
        .layer = kFullyConnected, .slices = {}, .rows = {5, 7}, .contributors = 2, .shards = 2};
    EXPECT_EQ(row.products(input).worker > 0, row.takes_factors) << row.name;
  }
}

}  // namespace
}  // namespace poseidon::plan
