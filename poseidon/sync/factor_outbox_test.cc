// SPDX-License-Identifier: Apache-2.0
// What leaves compressed, and in which memory. That the other end makes the same numbers of it is shown by whole jobs:
// tests/integration/core_test.cc.
#include "poseidon/sync/factor_outbox.h"

#include <gtest/gtest.h>

#include <vector>

#include "poseidon/base/random.h"

namespace poseidon::sync {
namespace {

using Mode = plan::ZeroCompression;

constexpr std::size_t kNumbers = 100'000;

ConstBytes BytesOf(const std::vector<float>& numbers) { return std::as_bytes(std::span(numbers)); }

std::vector<float> Numbers(double zeros, std::size_t count = kNumbers) {
  Random random(7);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = random.Chance(zeros) ? 0.0f : 1.0f + static_cast<float>(random.Unit());
  return numbers;
}

// At 1 Gbit/s compressing pays from a twelfth of zeros on.
CompressionRule Rule(Mode mode, double bandwidth = 0.125e9) {
  CompressionRule rule(mode);
  plan::Plan plan;
  plan.cluster.workers = 2;
  plan.cluster.bandwidth = bandwidth;
  rule.UsePlan(plan);
  return rule;
}

TEST(PackedFactor, LeavesWithoutItsZerosWhereThatPays) {
  const std::vector<float> half = Numbers(0.5);
  PackedFactor packed;
  packed.Pack(BytesOf(half), 1, Rule(Mode::kAuto));
  EXPECT_EQ(packed.words(), kNumbers);
  EXPECT_NEAR(static_cast<double>(packed.bytes().size()) / (4 * kNumbers), 0.53, 0.02);
  std::vector<float> out(kNumbers);
  factors::Expander expander(std::as_writable_bytes(std::span(out)), packed.bytes().size());
  ASSERT_TRUE(expander.Take(packed.bytes()).ok());
  EXPECT_EQ(out, half);
}

TEST(PackedFactor, LeavesAsItIsWhereThatPaysNot) {
  const std::vector<float> half = Numbers(0.5);
  const std::vector<float> dense = Numbers(0);
  const std::vector<float> few = Numbers(0.5, 100);
  const auto as_it_is = [](const std::vector<float>& numbers, const CompressionRule& rule) {
    PackedFactor packed;
    packed.Pack(BytesOf(numbers), 1, rule);
    return packed.words() == 0 && packed.bytes().data() == BytesOf(numbers).data() &&
           packed.bytes().size() == BytesOf(numbers).size() && packed.allocated_bytes() == 0;
  };
  EXPECT_TRUE(as_it_is(half, Rule(Mode::kOff)));
  EXPECT_TRUE(as_it_is(half, Rule(Mode::kAuto, 12.5e9))) << "a link that is faster than compressing";
  EXPECT_TRUE(as_it_is(half, CompressionRule(Mode::kAuto))) << "a link that is not known";
  EXPECT_TRUE(as_it_is(dense, Rule(Mode::kAuto)));
  EXPECT_TRUE(as_it_is(few, Rule(Mode::kAuto)));
  EXPECT_FALSE(as_it_is(dense, Rule(Mode::kAlways)));
  EXPECT_FALSE(as_it_is(few, CompressionRule(Mode::kAlways)));
}

// The probe sees 64 lines of 64 bytes. Here they alone are zero.
TEST(PackedFactor, DenseNumbersThatTheProbeMissesLeaveAsTheyAre) {
  std::vector<float> numbers = Numbers(0);
  const std::size_t lines = kNumbers / 16;
  for (std::size_t i = 0; i < 64; ++i) {
    const double share = 0.6180339887498949 * static_cast<double>(i);
    const auto line = static_cast<std::size_t>((share - static_cast<double>(static_cast<std::size_t>(share))) *
                                               static_cast<double>(lines));
    std::fill_n(numbers.begin() + static_cast<std::ptrdiff_t>(16 * line), 16, 0.0f);
  }
  ASSERT_LT(factors::EstimateCompressedBytes(BytesOf(numbers)), kNumbers);
  PackedFactor packed;
  packed.Pack(BytesOf(numbers), 1, Rule(Mode::kAuto));
  EXPECT_EQ(packed.words(), 0u);
  EXPECT_EQ(packed.bytes().data(), BytesOf(numbers).data());
}

TEST(PackedFactor, KeepsItsMemory) {
  PackedFactor packed;
  EXPECT_EQ(packed.allocated_bytes(), 0u);
  const std::vector<float> half = Numbers(0.5);
  packed.Pack(BytesOf(half), 1, Rule(Mode::kAuto));
  const std::uint64_t allocated = packed.allocated_bytes();
  const std::byte* const memory = packed.bytes().data();
  EXPECT_GE(allocated, packed.bytes().size());
  EXPECT_LT(allocated, 4 * kNumbers);
  const std::vector<float> less = Numbers(0.7);
  packed.Pack(BytesOf(less), 1, Rule(Mode::kAuto));
  EXPECT_EQ(packed.bytes().data(), memory);
  EXPECT_EQ(packed.allocated_bytes(), allocated);
  packed.Pack({}, 1, Rule(Mode::kAlways));  // no rows
  EXPECT_EQ(packed.words(), 0u);
  EXPECT_TRUE(packed.bytes().empty());
}

}  // namespace
}  // namespace poseidon::sync
