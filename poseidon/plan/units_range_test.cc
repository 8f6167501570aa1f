// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/units_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace poseidon::plan {
namespace {

std::vector<UnitRange> Divide(std::uint64_t outputs, std::uint16_t shards) {
  return DivideUnits({.outputs = outputs, .inputs = 3}, shards);
}

TEST(DivideUnits, AsByHand) {
  EXPECT_EQ(Divide(10, 4), (std::vector<UnitRange>{{0, 0, 2}, {1, 2, 3}, {2, 5, 2}, {3, 7, 3}}));
  EXPECT_EQ(Divide(7, 1), (std::vector<UnitRange>{{0, 0, 7}}));
  // Fewer units than shards: some have none.
  EXPECT_EQ(Divide(2, 5), (std::vector<UnitRange>{{2, 0, 1}, {4, 1, 1}}));
}

TEST(DivideUnits, CoversAllOnceInSizesThatDifferByOne) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t outputs = i == 0 ? kMaxElements : 1 + random() % 5000;
    const auto shards = static_cast<std::uint16_t>(i == 0 ? 0xffff : 1 + random() % 300);
    std::uint64_t next = 0;
    std::uint64_t least = kMaxElements;
    std::uint64_t most = 0;
    int last_shard = -1;
    for (const UnitRange& range : Divide(outputs, shards)) {
      ASSERT_EQ(range.first, next);
      ASSERT_GT(range.shard, last_shard);
      ASSERT_LT(range.shard, shards);
      ASSERT_GT(range.count, 0u);
      last_shard = range.shard;
      next += range.count;
      least = std::min(least, range.count);
      most = std::max(most, range.count);
    }
    ASSERT_EQ(next, outputs);
    ASSERT_LE(most - least, 1u);
  }
}

}  // namespace
}  // namespace poseidon::plan
