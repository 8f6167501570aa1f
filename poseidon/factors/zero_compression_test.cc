// SPDX-License-Identifier: Apache-2.0
#include "poseidon/factors/zero_compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "poseidon/base/random.h"

namespace poseidon::factors {
namespace {

using ::testing::HasSubstr;

using Words = std::vector<std::uint32_t>;

ConstBytes BytesOf(const Words& words) { return std::as_bytes(std::span(words)); }

// Words of which about `zeros` in 1000 are zero.
Words Mixed(std::size_t count, std::uint64_t zeros, std::uint64_t seed) {
  Words words(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t x = Mix64(seed * 1'000'003 + i);
    words[i] = x % 1000 < zeros ? 0 : static_cast<std::uint32_t>(x >> 32) | 1;
  }
  return words;
}

ByteBuffer Compressed(const Words& words, CompressionPath path = CompressionPaths().back()) {
  ByteBuffer out(MostCompressedBytes(words.size() * kWordBytes));
  const auto count = Compress(BytesOf(words), out, path);
  EXPECT_TRUE(count.has_value());
  out.resize(count.value_or(0));
  return out;
}

// The documented bytes, word by word.
ByteBuffer Oracle(const Words& words) {
  ByteBuffer out;
  const auto add = [&](auto value) {
    const auto* const at = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), at, at + sizeof value);
  };
  for (std::size_t first = 0; first < words.size(); first += kGroupWords) {
    const auto group = std::span(words).subspan(first, std::min(kGroupWords, words.size() - first));
    std::uint64_t bitmap = 0;
    for (std::size_t i = 0; i < group.size(); ++i) bitmap |= std::uint64_t{group[i] != 0} << i;
    add(bitmap);
    for (const std::uint32_t word : group) {
      if (word != 0) add(word);
    }
  }
  return out;
}

TEST(ZeroCompression, EveryPathWritesTheDocumentedBytes) {
  for (const CompressionPath path : CompressionPaths()) {
    for (const std::size_t count : {0u, 1u, 7u, 8u, 63u, 64u, 65u, 127u, 128u, 1000u, 5003u}) {
      for (const std::uint64_t zeros : {0u, 30u, 500u, 970u, 1000u}) {
        const Words words = Mixed(count, zeros, count + zeros);
        const ByteBuffer compressed = Compressed(words, path);
        EXPECT_EQ(compressed, Oracle(words)) << count << " words, " << zeros << " in 1000 zero";
        EXPECT_GE(compressed.size(), LeastCompressedBytes(count * kWordBytes));
      }
    }
  }
}

TEST(ZeroCompression, EveryPathExpandsWhatIsCutAnywhere) {
  for (const CompressionPath path : CompressionPaths()) {
    for (const std::uint64_t zeros : {0u, 30u, 500u, 970u, 1000u}) {
      for (const std::size_t count : {1u, 64u, 65u, 1000u, 5003u}) {
        const Words words = Mixed(count, zeros, 7 * count + zeros);
        const ByteBuffer compressed = Compressed(words);
        for (const std::size_t cut :
             {std::size_t{1}, std::size_t{3}, std::size_t{264}, std::size_t{1001}, compressed.size()}) {
          Words out(count, 0xdddddddd);
          Expander expander(std::as_writable_bytes(std::span(out)), compressed.size(), path);
          for (std::size_t at = 0; at < compressed.size(); at += cut) {
            ASSERT_TRUE(expander.Take(ConstBytes(compressed).subspan(at, std::min(cut, compressed.size() - at))).ok());
          }
          EXPECT_EQ(out, words) << count << " words, " << zeros << " in 1000 zero, cut every " << cut;
          EXPECT_EQ(expander.taken(), compressed.size());
          EXPECT_EQ(expander.expanded(), count * kWordBytes);
        }
      }
    }
  }
}

// The words around each bit, so that no path takes one of them for zero.
TEST(ZeroCompression, OnlyPositiveZeroIsLeftOut) {
  Words words;
  for (const float number : {-0.0f, std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::infinity(), std::numeric_limits<float>::denorm_min(), 0.0f}) {
    words.push_back(std::bit_cast<std::uint32_t>(number));
  }
  for (int bit = 0; bit < 32; ++bit) words.push_back(std::uint32_t{1} << bit);
  while (words.size() < 2 * kGroupWords) words.push_back(0x7fa00001);  // a signalling NaN
  for (const CompressionPath path : CompressionPaths()) {
    const ByteBuffer compressed = Compressed(words, path);
    EXPECT_EQ(compressed.size(), MostCompressedBytes(words.size() * kWordBytes) - kWordBytes);  // 0.0f alone
    Words out(words.size());
    Expander expander(std::as_writable_bytes(std::span(out)), compressed.size(), path);
    ASSERT_TRUE(expander.Take(compressed).ok());
    EXPECT_EQ(out, words);
  }
}

TEST(ZeroCompression, WhatHasNoRoomIsNotCompressedAndNothingBehindTheRoomIsWritten) {
  for (const CompressionPath path : CompressionPaths()) {
    for (const std::size_t count : {65u, 640u, 1000u}) {
      const Words words = Mixed(count, 500, count);
      const std::size_t size = Oracle(words).size();
      for (const std::size_t missing : {std::size_t{0}, std::size_t{1}, std::size_t{300}, size}) {
        ByteBuffer out(size + 64, std::byte{0xee});
        const MutableBytes room = MutableBytes(out).first(size - std::min(missing, size));
        EXPECT_EQ(Compress(BytesOf(words), room, path).has_value(), missing == 0);
        for (std::size_t i = room.size(); i < out.size(); ++i) ASSERT_EQ(out[i], std::byte{0xee});
      }
    }
  }
}

TEST(ZeroCompression, TheEstimateIsNearWhateverTheRowsAre) {
  for (const std::uint64_t zeros : {0u, 250u, 500u, 750u, 1000u}) {
    // Whole columns of zeros, as units that are never active leave; the width divides any fixed distance.
    constexpr std::size_t kRows = 64;
    constexpr std::size_t kWidth = 4096;
    Words words(kRows * kWidth);
    const Words column = Mixed(kWidth, zeros, 3);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = column[i % kWidth];
    const double exact = static_cast<double>(Oracle(words).size());
    const double estimate = static_cast<double>(EstimateCompressedBytes(BytesOf(words)));
    EXPECT_NEAR(estimate / static_cast<double>(words.size() * kWordBytes),
                exact / static_cast<double>(words.size() * kWordBytes), 0.07)
        << zeros;
  }
  const Words few = Mixed(256, 500, 5);  // all of them are looked at
  EXPECT_EQ(EstimateCompressedBytes(BytesOf(few)), Oracle(few).size());
}

TEST(ZeroCompression, BytesThatEndWrongAreRefused) {
  const Words words = Mixed(100, 500, 1);
  const ByteBuffer compressed = Compressed(words);
  Words out(words.size());
  const MutableBytes into = std::as_writable_bytes(std::span(out));
  const auto refusal = [&](MutableBytes place, std::size_t announced, ConstBytes bytes) {
    Expander expander(place, announced);
    return std::string(expander.Take(bytes).message());
  };
  EXPECT_EQ(refusal(into, compressed.size(), compressed), "");
  EXPECT_THAT(refusal(into, compressed.size() - 1, compressed), HasSubstr("behind their end"));
  EXPECT_THAT(refusal(into, compressed.size() - 4, ConstBytes(compressed).first(compressed.size() - 4)),
              HasSubstr("end after 256 bytes, expected 400"));
  ByteBuffer longer = compressed;
  longer.resize(longer.size() + 8);
  EXPECT_THAT(refusal(into, longer.size(), longer), HasSubstr("not there"));
  // Announced, but they have not come: the last group is whole all the same.
  EXPECT_THAT(refusal(into, longer.size(), compressed), HasSubstr("end after 400 bytes"));
  // Bit 36 of the second group is of word 100.
  ByteBuffer beyond = compressed;
  const std::size_t second = kBitmapBytes + 4 * static_cast<std::size_t>(std::popcount([&] {
                                              std::uint64_t bitmap;
                                              std::memcpy(&bitmap, compressed.data(), sizeof bitmap);
                                              return bitmap;
                                            }()));
  beyond[second + 4] |= std::byte{0x10};
  beyond.resize(beyond.size() + 4);
  EXPECT_THAT(refusal(into, beyond.size(), beyond), HasSubstr("not there"));
}

}  // namespace
}  // namespace poseidon::factors
