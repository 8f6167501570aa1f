// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/slices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace poseidon::plan {
namespace {

LayerSpec Dense(std::string name, std::uint64_t elements, DType dtype = DType::kF32) {
  return {.name = std::move(name), .shape = "", .dtype = dtype, .elements = elements};
}

void ExpectPartition(const std::vector<Slice>& slices, std::uint64_t elements,
                     std::uint16_t shards) {
  std::uint64_t next = 0;
  int last_shard = -1;
  for (const Slice& slice : slices) {
    EXPECT_EQ(slice.first, next);
    EXPECT_GT(slice.count, 0u);
    EXPECT_LT(slice.shard, shards);
    EXPECT_GT(int{slice.shard}, last_shard);
    last_shard = slice.shard;
    next += slice.count;
  }
  EXPECT_EQ(next, elements);
}

// The elements of the smallest and of the largest slice.
std::pair<std::uint64_t, std::uint64_t> Extremes(const std::vector<Slice>& slices) {
  const auto [low, high] = std::ranges::minmax(slices, {}, &Slice::count);
  return {low.count, high.count};
}

TEST(MakeSlices, CutsALayerThatDividesNothing) {
  // 4102 = 256 units and 6 elements; 257 units over 3 shards.
  EXPECT_EQ(MakeSlices(4102, DType::kF32, 3, 0),
            (std::vector<Slice>{{0, 0, 1360}, {1, 1360, 1376}, {2, 2736, 1366}}));
}

TEST(MakeSlices, ASmallTensorHasAsManySlicesAsItFills) {
  EXPECT_EQ(MakeSlices(2047, DType::kF32, 4, 2), (std::vector<Slice>{{2, 0, 2047}}));
  EXPECT_EQ(MakeSlices(1023, DType::kF64, 4, 3), (std::vector<Slice>{{3, 0, 1023}}));
  EXPECT_EQ(MakeSlices(2048, DType::kF32, 4, 2), (std::vector<Slice>{{2, 0, 1024}, {3, 1024, 1024}}));
  // The first shard follows the last.
  EXPECT_EQ(MakeSlices(2048, DType::kF32, 4, 3), (std::vector<Slice>{{0, 0, 1024}, {3, 1024, 1024}}));
  EXPECT_EQ(MakeSlices(4096, DType::kF32, 4, 2).size(), 4u);
}

TEST(MakeSlices, AnySizeIsCoveredInOrderByEvenSlices) {
  std::mt19937_64 random(1);
  const DType dtypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64};
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t elements = 1 + random() % (std::uint64_t{1} << (1 + random() % 34));
    const auto shards = static_cast<std::uint16_t>(1 + random() % (i % 2 == 0 ? 9 : 600));
    const auto owner = static_cast<std::uint16_t>(random() % shards);
    const DType dtype = dtypes[random() % 5];
    SCOPED_TRACE(std::to_string(elements) + " over " + std::to_string(shards));
    const auto slices = MakeSlices(elements, dtype, shards, owner);
    ExpectPartition(slices, elements, shards);
    for (const Slice& slice : slices) EXPECT_EQ(slice.first % kSliceUnit, 0u);
    EXPECT_EQ(slices.size(), std::clamp<std::uint64_t>(elements * SizeOf(dtype) / 4096, 1, shards));
    EXPECT_TRUE(std::ranges::any_of(slices, [&](const Slice& slice) { return slice.shard == owner; }) || slices.size() == shards);
    const auto [low, high] = Extremes(slices);
    EXPECT_LE(high - low, kSliceUnit);
    if (HasFailure()) return;
  }
}

TEST(AssignSlices, BytesPerShardComeOutEven) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 500; ++i) {
    const auto shards = static_cast<std::uint16_t>(1 + random() % 12);
    std::vector<LayerSpec> layers;
    for (std::uint64_t n = random() % 60; n > 0; --n) {
      const bool small = random() % 2 == 0;
      layers.push_back(Dense("l" + std::to_string(n), 1 + random() % (small ? 12'000 : 3'000'000)));
    }
    const auto slices = AssignSlices(layers, shards);
    ASSERT_EQ(slices.size(), layers.size());
    std::vector<std::uint64_t> load(shards, 0);
    for (std::size_t l = 0; l < layers.size(); ++l) {
      ExpectPartition(slices[l], layers[l].elements, shards);
      for (const Slice& slice : slices[l]) load[slice.shard] += slice.count * 4;
    }
    const auto [low, high] = std::minmax_element(load.begin(), load.end());
    // A slice of a tensor that has not one at every shard is smaller than two least ones; of the others each differs by a unit.
    EXPECT_LE(*high - *low, 2 * kLeastSliceBytes + layers.size() * kSliceUnit * 4);
    EXPECT_EQ(slices, AssignSlices(layers, shards));
    if (HasFailure()) return;
  }
}

TEST(AssignSlices, SmallTensorsSpreadOverShards) {
  const std::vector<LayerSpec> layers = {Dense("a", 20), Dense("b", 500), Dense("c", 10),
                                         Dense("d", 500)};
  const auto slices = AssignSlices(layers, 3);
  EXPECT_EQ(slices[1][0].shard, 0);
  EXPECT_EQ(slices[3][0].shard, 1);
  EXPECT_EQ(slices[0][0].shard, 2);
  EXPECT_EQ(slices[2][0].shard, 2);
}

TEST(AssignSlices, ATensorTooSmallForEveryShardGoesToThoseWithTheLeast) {
  const std::vector<LayerSpec> layers = {Dense("a", 500), Dense("b", 2048), Dense("c", 1500)};
  const auto slices = AssignSlices(layers, 4);
  EXPECT_EQ(slices[1], (std::vector<Slice>{{0, 0, 1024}, {1, 1024, 1024}}));
  EXPECT_EQ(slices[2], (std::vector<Slice>{{2, 0, 1500}}));
  EXPECT_EQ(slices[0], (std::vector<Slice>{{3, 0, 500}}));
}

TEST(AssignSlices, WholeLayersGoToTheirOwnersInTurn) {
  const std::vector<LayerSpec> layers = {Dense("a", 20), Dense("b", 5'000'000), Dense("c", 10),
                                         Dense("d", 500)};
  const auto slices = AssignSlices(layers, 3, Placement::kWhole);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Slice whole{.shard = static_cast<std::uint16_t>(i % 3), .count = layers[i].elements};
    EXPECT_EQ(slices[i], std::vector<Slice>{whole}) << i;
  }
}

TEST(AssignSlices, PairsGoToTheirOwnersInTurn) {
  constexpr std::uint64_t kPair = kPairBytes / sizeof(float);
  const std::vector<LayerSpec> layers = {Dense("a", 20), Dense("b", 6 * kPair - 5), Dense("c", kPair), Dense("none", 0),
                                         Dense("d", kPair + 1)};
  const auto slices = AssignSlices(layers, 4, Placement::kPairs);
  EXPECT_EQ(slices[0], (std::vector<Slice>{{0, 0, 20}}));
  // The second pair is the first of b's, at owner 1; of its six two owners have two.
  EXPECT_EQ(slices[1], (std::vector<Slice>{{0, 0, kPair}, {1, kPair, kPair}, {2, 2 * kPair, 2 * kPair}, {3, 4 * kPair, 2 * kPair - 5}}));
  EXPECT_EQ(slices[2], (std::vector<Slice>{{3, 0, kPair}}));  // behind 7 pairs
  EXPECT_EQ(slices[3], std::vector<Slice>{});
  EXPECT_EQ(slices[4], (std::vector<Slice>{{0, 0, kPair}, {1, kPair, 1}}));
}

TEST(Validate, NamesTheLayer) {
  std::vector<LayerSpec> layers = {Dense("conv1", 500), Dense("ip1", 4010)};
  layers[1].factors = FactorShape{.outputs = 10, .inputs = 400, .bias = true};
  EXPECT_TRUE(Validate(layers).ok());
  layers[1].factors->bias = false;
  EXPECT_NE(Validate(layers).message().find("layer 'ip1' has 4010 elements"), std::string::npos);
  // A product that would overflow to the right number is still wrong.
  layers[1].elements = 16;
  layers[1].factors = FactorShape{.outputs = 16, .inputs = (std::uint64_t{1} << 60) + 1};
  EXPECT_FALSE(Validate(layers).ok());
  layers[1] = Dense("words", 4010);
  layers[1].factors = FactorShape{.outputs = 10, .inputs = 400, .bias = true, .table = true};
  EXPECT_EQ(Validate(layers).message(), "layer 'words' is a table with a bias, expected one without");
  layers[1] = Dense("conv1", 3);
  EXPECT_EQ(Validate(layers).message(), "two layers are named 'conv1'");
  layers[1] = Dense("empty", 0);
  EXPECT_FALSE(Validate(layers).ok());
}

}  // namespace
}  // namespace poseidon::plan
