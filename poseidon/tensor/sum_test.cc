// SPDX-License-Identifier: Apache-2.0
#include "poseidon/tensor/sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "poseidon/tensor/view.h"

namespace poseidon {
namespace {

std::vector<std::vector<float>> RandomRanks(std::size_t ranks, std::size_t elements) {
  std::mt19937 generator(7);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<std::vector<float>> all(ranks, std::vector<float>(elements));
  for (auto& one : all)
    for (float& x : one) x = uniform(generator);
  return all;
}

std::vector<Summand> Summands(const std::vector<std::vector<float>>& ranks) {
  std::vector<Summand> list;
  list.reserve(ranks.size());
  for (const auto& r : ranks) list.push_back({reinterpret_cast<const std::byte*>(r.data()), 0});
  return list;
}

TEST(SumTest, AddsInRankOrderAndScalesOnce) {
  const auto ranks = RandomRanks(5, 5001);
  std::vector<float> out(5001);
  SumInRankOrder(Summands(ranks), 5, out.size(), DType::kF32, Scaling::kMean,
                 ViewOf(out).memory);
  for (std::size_t i = 0; i < out.size(); ++i) {
    float sum = ranks[0][i];
    for (std::size_t r = 1; r < 5; ++r) sum += ranks[r][i];
    ASSERT_EQ(out[i], sum * (1.0f / 5.0f)) << "element " << i;
  }
}

TEST(SumTest, AnySplitGivesTheSameBitsAndOutMayBeAContribution) {
  auto ranks = RandomRanks(3, 4099);
  std::vector<float> whole(4099);
  SumInRankOrder(Summands(ranks), 3, 4099, DType::kF32, Scaling::kMean, ViewOf(whole).memory);
  for (std::size_t begin = 0; begin < 4099; begin += 1000) {
    const std::size_t n = std::min<std::size_t>(1000, 4099 - begin);
    std::vector<Summand> part = Summands(ranks);
    for (auto& c : part) c.memory += begin * sizeof(float);
    SumInRankOrder(part, 3, n, DType::kF32, Scaling::kMean,
                   reinterpret_cast<std::byte*>(ranks[1].data() + begin));
  }
  EXPECT_EQ(std::memcmp(whole.data(), ranks[1].data(), whole.size() * sizeof(float)), 0);
}

TEST(SumTest, AbsentAddsNothingAndKeepsNegativeZero) {
  std::vector<float> only = {-0.0f, 2.0f};
  std::vector<Summand> list = {{nullptr, 0}, {ViewOf(only).memory, 0}, {nullptr, 0}};
  std::vector<float> out(2, 9.0f);
  SumInRankOrder(list, 3, 2, DType::kF32, Scaling::kNone, ViewOf(out).memory);
  EXPECT_TRUE(std::signbit(out[0]));
  EXPECT_EQ(out[1], 2.0f);
  std::vector<Summand> none(3);
  SumInRankOrder(none, 3, 2, DType::kF32, Scaling::kMean, ViewOf(out).memory);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 0.0f);
}

TEST(SumTest, WeightsMakeTheMeanOverSamples) {
  std::vector<double> a = {1.0}, b = {4.0};
  std::vector<Summand> list = {{ViewOf(a).memory, 3}, {ViewOf(b).memory, 1}};
  double out = 0;
  SumInRankOrder(list, 2, 1, DType::kF64, Scaling::kMean, reinterpret_cast<std::byte*>(&out));
  EXPECT_EQ(out, (1.0 * 3 + 4.0) / 4.0);
}

// A worker without samples may bring what a mean over none is.
TEST(SumTest, AWeightOfZeroAmongOthersAddsNothingWhateverLiesThere) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Scaling scaling : {Scaling::kNone, Scaling::kMean, Scaling::kMeanOfSums}) {
    std::vector<double> a = {1.0, -0.0}, b = {nan, std::numeric_limits<double>::infinity()}, c = {4.0, -0.0};
    const std::vector<Summand> with = {
        {ViewOf(a).memory, 3}, {ViewOf(b).memory, 0}, {ViewOf(c).memory, 1}};
    const std::vector<Summand> without = {{ViewOf(a).memory, 3}, {ViewOf(c).memory, 1}};
    std::vector<double> expected(2);
    SumInRankOrder(without, 2, 2, DType::kF64, scaling, ViewOf(expected).memory);
    SumInRankOrder(with, 3, 2, DType::kF64, scaling, ViewOf(b).memory);
    EXPECT_EQ(std::memcmp(b.data(), expected.data(), 2 * sizeof(double)), 0);
    EXPECT_TRUE(std::signbit(b[1]));
  }
}

// Sums by host of 3 * 1 + 1 * 4 and of 2 * 5; then their mean over all samples, or over all ranks.
TEST(SumTest, AMeanOfSumsCountsWeightsInTheDivisorOnly) {
  std::vector<double> a = {7.0}, b = {10.0}, c = {99.0};
  double out = 0;
  const std::vector<Summand> weighted = {
      {ViewOf(a).memory, 4}, {ViewOf(b).memory, 2}, {ViewOf(c).memory, 0}};
  SumInRankOrder(weighted, 9, 1, DType::kF64, Scaling::kMeanOfSums,
                 reinterpret_cast<std::byte*>(&out));
  EXPECT_EQ(out, 17.0 * (1.0 / 6.0));
  const std::vector<Summand> plain = {{ViewOf(a).memory, 0}, {}, {ViewOf(b).memory, 0}};
  SumInRankOrder(plain, 4, 1, DType::kF64, Scaling::kMeanOfSums,
                 reinterpret_cast<std::byte*>(&out));
  EXPECT_EQ(out, 17.0 / 4.0);
}

TEST(SumTest, IntegersAreNeverScaled) {
  std::vector<std::int64_t> a = {5, -7}, b = {1LL << 40, 2};
  std::vector<Summand> list = {{ViewOf(a).memory, 0}, {ViewOf(b).memory, 0}};
  std::vector<std::int64_t> out(2);
  SumInRankOrder(list, 2, 2, DType::kI64, Scaling::kMean, ViewOf(out).memory);
  EXPECT_EQ(out[0], (1LL << 40) + 5);
  EXPECT_EQ(out[1], -5);
}

}  // namespace
}  // namespace poseidon
