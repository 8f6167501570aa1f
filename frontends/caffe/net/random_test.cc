// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/random.h"

#include <gtest/gtest.h>

#include <set>

namespace poseidon::caffe {
namespace {

// The known answers its authors publish for 10 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(NameHash, KnownAnswers) {
  EXPECT_EQ(NameHash(""), 0xcbf29ce484222325U);
  EXPECT_EQ(NameHash("a"), 0xaf63dc4c8601ec8cU);
}

// Every part of a stream's identity and of a draw's address changes the words.
TEST(RandomStream, EveryPartOfTheAddressCounts) {
  std::set<PhiloxCounter> seen;
  const auto draw = [](std::uint64_t seed, RandomPurpose purpose, const char* layer,
                       std::uint64_t turn, std::uint64_t sample, std::uint64_t block) {
    return RandomStream(seed, purpose, layer, turn).Draw(sample, block);
  };
  seen.insert(draw(1, RandomPurpose::kDropout, "a", 0, 0, 0));
  seen.insert(draw(2, RandomPurpose::kDropout, "a", 0, 0, 0));
  seen.insert(draw(std::uint64_t{1} << 32, RandomPurpose::kDropout, "a", 0, 0, 0));
  seen.insert(draw(1, RandomPurpose::kFiller, "a", 0, 0, 0));
  seen.insert(draw(1, RandomPurpose::kDropout, "b", 0, 0, 0));
  seen.insert(draw(1, RandomPurpose::kDropout, "a", 1, 0, 0));
  seen.insert(draw(1, RandomPurpose::kDropout, "a", std::uint64_t{1} << 32, 0, 0));
  seen.insert(draw(1, RandomPurpose::kDropout, "a", 0, 1, 0));
  seen.insert(draw(1, RandomPurpose::kDropout, "a", 0, std::uint64_t{1} << 32, 0));
  seen.insert(draw(1, RandomPurpose::kDropout, "a", 0, 0, 1));
  seen.insert(draw(1, RandomPurpose::kDropout, "a", 0, 0, std::uint64_t{1} << 32));
  EXPECT_EQ(seen.size(), 11U);
  EXPECT_EQ(draw(1, RandomPurpose::kDropout, "a", 3, 4, 5),
            draw(1, RandomPurpose::kDropout, "a", 3, 4, 5));
}

}  // namespace
}  // namespace poseidon::caffe
