// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/byte_codec.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace poseidon {
namespace {

TEST(ByteCodec, WhatWasWrittenIsRead) {
  ByteWriter out;
  out.U8(0xfe);
  out.U16(0xfedc);
  out.U32(0xfedcba98u);
  out.U64(0xfedcba9876543210u);
  out.I32(-5);
  out.I64(std::numeric_limits<std::int64_t>::min());
  out.Bool(true);
  out.F64(-0.1);
  out.Text("a text");
  out.Block({});
  ByteReader in(out.buffer());
  EXPECT_EQ(in.U8(), 0xfe);
  EXPECT_EQ(in.U16(), 0xfedc);
  EXPECT_EQ(in.U32(), 0xfedcba98u);
  EXPECT_EQ(in.U64(), 0xfedcba9876543210u);
  EXPECT_EQ(in.I32(), -5);
  EXPECT_EQ(in.I64(), std::numeric_limits<std::int64_t>::min());
  EXPECT_TRUE(in.Bool());
  EXPECT_EQ(in.F64(), -0.1);
  EXPECT_EQ(in.Text(6), "a text");
  EXPECT_TRUE(in.Block(0).empty());
  EXPECT_TRUE(in.Finish("it").ok());
}

TEST(ByteCodec, IsLittleEndian) {
  ByteWriter out;
  out.U32(0x01020304);
  EXPECT_EQ(ToHex(out.buffer()), "04030201");
}

TEST(ByteCodec, TheFirstMistakeFailsAllThatFollows) {
  ByteWriter out;
  out.U16(7);
  out.U8(1);
  ByteReader in(out.buffer());
  EXPECT_EQ(in.U32(), 0u);
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.U8(), 0);  // although there are bytes
  EXPECT_EQ(in.Text(9), "");
  EXPECT_EQ(in.Finish("the thing").message(), "the thing is truncated or holds an illegal value");
}

TEST(ByteCodec, BoundsAreCheckedBeforeAnythingIsTaken) {
  ByteWriter out;
  out.Text("too long");
  ByteReader text(out.buffer());
  EXPECT_EQ(text.Text(7), "");
  EXPECT_FALSE(text.ok());

  ByteWriter counted;
  counted.U32(3);
  counted.Raw(AsBytes("12345678"));
  ByteReader fits(counted.buffer());
  EXPECT_EQ(fits.Count(3, 2), 3u);
  ByteReader too_many(counted.buffer());
  EXPECT_EQ(too_many.Count(2, 2), 0u);
  EXPECT_FALSE(too_many.ok());
  ByteReader too_large(counted.buffer());
  EXPECT_EQ(too_large.Count(3, 3), 0u);
  EXPECT_FALSE(too_large.ok());
}

TEST(ByteCodec, AFlagIsZeroOrOne) {
  const ByteBuffer two = {std::byte{2}};
  ByteReader in(two);
  in.Bool();
  EXPECT_FALSE(in.ok());
}

TEST(ByteCodec, NothingMayBeLeft) {
  ByteWriter out;
  out.U16(1);
  ByteReader in(out.buffer());
  in.U8();
  EXPECT_EQ(in.Finish("the thing").message(), "the thing has 1 bytes behind its end");
}

}  // namespace
}  // namespace poseidon
