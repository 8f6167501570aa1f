// SPDX-License-Identifier: Apache-2.0
#include "poseidon/wire/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "poseidon/base/bytes.h"
#include "poseidon/base/random.h"

namespace poseidon::wire {
namespace {

using ::testing::HasSubstr;

using Bytes = std::array<std::byte, kHeaderBytes>;
constexpr std::size_t kChecked = kHeaderBytes - 4;

FrameHeader Example() {
  FrameHeader h;
  h.type = FrameType::kFactor;
  h.length = 0x0001'0203;
  h.generation = Generation(0x0405'0607);
  h.words = 0x0809'0a0b;
  h.step = Step(0x0c0d'0e0f'1011'1213);
  h.model = ModelId(0x1415);
  h.rank = Rank(0x1617);
  h.layer = LayerId(0x1819'1a1b);
  h.offset = 0x1c1d'1e1f'2021'2223;
  h.total = 0x2425'2627'2829'2a2b;
  h.weight = 0x2c2d'2e2f;
  h.dtype = DType::kBF16;
  h.scheme = plan::Scheme::kFactorBroadcast;
  h.flags = kFlagFactorV;
  return h;
}

Bytes Encoded(const FrameHeader& header) {
  Bytes bytes;
  EncodeHeader(header, bytes);
  return bytes;
}

// Sets bytes of an encoded header and makes its checksum right again.
Bytes Forged(const FrameHeader& header, std::size_t at, const std::string& raw) {
  Bytes bytes = Encoded(header);
  std::memcpy(bytes.data() + at, raw.data(), raw.size());
  const std::uint32_t crc = Crc32c(ConstBytes(bytes).first(kChecked));
  std::memcpy(bytes.data() + kChecked, &crc, sizeof crc);
  return bytes;
}

TEST(FrameHeader, WhatWasEncodedIsDecoded) {
  EXPECT_EQ(DecodeHeader(Encoded(Example())).value(), Example());
  EXPECT_EQ(DecodeHeader(Encoded(FrameHeader{})).value(), FrameHeader{});
}

// The layout is a promise to other implementations: every field little-endian at its offset.
TEST(FrameHeader, TheBytesAreThoseOfTheProtocol) {
  const std::string hex = ToHex(Encoded(Example()));
  EXPECT_EQ(hex.substr(0, 2 * kChecked),
            "5053"  // "PS"
            "09"
            "05"        // version, type
            "03020100"  // length
            "07060504"  // generation
            "0b0a0908"  // words
            "13121110"
            "0f0e0d0c"  // step
            "1514"
            "1716"      // model, rank
            "1b1a1918"  // layer
            "23222120"
            "1f1e1d1c"  // offset
            "2b2a2928"
            "27262524"  // total
            "2f2e2d2c"  // weight
            "04"
            "02"
            "0200"        // dtype, scheme, flags
            "00000000");  // reserved
}

TEST(FrameHeader, EveryTypeAndDtypeTravels) {
  for (std::uint8_t type = 1; type <= 8; ++type) {
    FrameHeader h;
    h.type = static_cast<FrameType>(type);
    h.dtype = static_cast<DType>(1 + type % 5);
    h.flags = kFlagAbsent;
    EXPECT_EQ(DecodeHeader(Encoded(h)).value(), h);
  }
}

TEST(FrameHeader, OnlyFactorsAreCompressed) {
  FrameHeader h = Example();
  EXPECT_TRUE(h.compressed());
  EXPECT_EQ(h.whole_bytes(), 4u * 0x0809'0a0bu);
  h.words = 0;
  EXPECT_EQ(h.whole_bytes(), h.total);
  for (std::uint8_t type = 1; type <= 8; ++type) {
    FrameHeader other;
    other.type = static_cast<FrameType>(type);
    other.words = 1;
    EXPECT_EQ(DecodeHeader(Encoded(other)).ok(), other.type == FrameType::kFactor) << unsigned{type};
  }
}

TEST(FrameHeader, EveryFlippedBitIsRefused) {
  const Bytes good = Encoded(Example());
  for (std::size_t bit = 0; bit < 8 * kHeaderBytes; ++bit) {
    Bytes bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_EQ(DecodeHeader(bytes).status().code(), StatusCode::kDataLoss) << "bit " << bit;
  }
}

struct Forgery {
  std::size_t at;
  std::string bytes;
  std::string complaint;
};

// A checksum that is right does not make a header legal.
TEST(FrameHeader, IllegalValuesWithAGoodChecksumAreRefused) {
  const std::string zero(1, '\0');
  for (const Forgery& forgery : {
           Forgery{0, "XX", "magic"},
           Forgery{2, "\x01", "version 1, expected 9"},
           Forgery{3, zero, "unknown type 0"},
           Forgery{3, "\x09", "unknown type 9"},
           Forgery{3, "\xff", "unknown type 255"},
           Forgery{56, "\x01", "reserved bytes"},
           Forgery{59, "\x80", "reserved bytes"},
           Forgery{52, zero, "unknown dtype 0"},
           Forgery{52, "\x06", "unknown dtype 6"},
           Forgery{53, zero, "unknown scheme 0"},
           Forgery{53, "\x04", "unknown scheme 4"},
           Forgery{54, "\x10", "unknown flags"},
           Forgery{55, "\x80", "unknown flags"},
       }) {
    const Status status = DecodeHeader(Forged(Example(), forgery.at, forgery.bytes)).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << forgery.complaint;
    EXPECT_THAT(status.message(), HasSubstr(forgery.complaint));
  }
}

TEST(FrameHeader, LengthsAreBounded) {
  FrameHeader h;
  h.length = kMaxPayload;
  h.total = kMaxPayload;
  EXPECT_TRUE(DecodeHeader(Encoded(h)).ok());
  h.length = kMaxPayload + 1;
  h.total = kMaxPayload + 1;
  EXPECT_THAT(DecodeHeader(Encoded(h)).status().message(), HasSubstr("at most 1048576"));
  h.length = 0xffff'ffff;
  h.total = 0xffff'ffff;
  EXPECT_FALSE(DecodeHeader(Encoded(h)).ok());
}

// offset + length may wrap around: the sum must not be what is compared.
TEST(FrameHeader, NothingReachesBeyondItsWhole) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  FrameHeader h;
  h.length = 100;
  for (const auto& [offset, total, legal] :
       {std::tuple<std::uint64_t, std::uint64_t, bool>{0, 100, true},
        {0, 99, false},
        {1, 100, false},
        {1, 101, true},
        {kMost - 50, 200, false},
        {kMost - 50, kMost, false},
        {kMost - 100, kMost, true},
        {kMost, kMost, false},
        {101, 100, false}}) {
    h.offset = offset;
    h.total = total;
    EXPECT_EQ(DecodeHeader(Encoded(h)).ok(), legal) << offset << " of " << total;
  }
}

// Any bytes: refused, or decoded to what encodes to the same bytes. Half of them get a right
// checksum, so that the checks behind it are reached too.
TEST(FrameHeader, DamagedBytesNeverSurprise) {
  Random random(23);
  int accepted = 0;
  for (int i = 0; i < 200'000; ++i) {
    Bytes bytes = Encoded(Example());
    if (i % 5 == 0) {
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
      std::memcpy(bytes.data(), "PS\x05", 3);
    }
    for (std::uint64_t flips = random.Below(4); flips > 0; --flips) {
      bytes[random.Below(kChecked)] = static_cast<std::byte>(random());
    }
    if (i % 2 == 0) {
      const std::uint32_t crc = Crc32c(ConstBytes(bytes).first(kChecked));
      std::memcpy(bytes.data() + kChecked, &crc, sizeof crc);
    }
    if (const auto header = DecodeHeader(bytes); header.ok()) {
      ++accepted;
      ASSERT_EQ(Encoded(*header), bytes);
      ASSERT_LE(header->length, kMaxPayload);
    }
  }
  EXPECT_GT(accepted, 10'000);
}

}  // namespace
}  // namespace poseidon::wire
