// SPDX-License-Identifier: Apache-2.0
#include "poseidon/wire/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "poseidon/base/byte_codec.h"
#include "poseidon/base/random.h"

namespace poseidon::wire {
namespace {

std::vector<plan::LayerSpec> DeclaredLayers() {
  return {{.name = "conv1", .shape = "20x1x5x5+20", .elements = 520},
          {.name = "ip1",
           .shape = "500x800+500",
           .dtype = DType::kF64,
           .elements = 400'500,
           .forward_position = 1,
           .factors = plan::FactorShape{500, 800, true}}};
}

plan::Plan PlanOf(std::size_t layers) {
  plan::Plan plan;
  plan.epoch = PlanEpoch(1);
  plan.switch_step = Step(10);
  plan.cluster.workers = 2;
  for (std::uint32_t i = 0; i < layers; ++i) {
    plan::LayerPlan layer;
    layer.layer = LayerId(i);
    layer.reason = "fewer bytes";
    layer.measured.rows = {64, 0};
    layer.send_position = 1 - i;
    plan.layers.push_back(layer);
  }
  return plan;
}

// One of every message, in the order of the variant, so that none can be forgotten.
std::vector<Message> OneOfEach() {
  return {
      Join{Role::kServer, 3, "host a", "10.0.0.2", 4711, "machine 7", "wfbp", 5e7},
      Welcome{Generation(7),
              MemberId(1),
              {{MemberId(0), Role::kWorker, Rank(0), "a", "10.0.0.1", 1},
               {MemberId(1), Role::kServer, Rank(0), "b", "10.0.0.2", 65535}},
              5e7},
      Refuse{"this job of 2 workers has all of them"},
      Hello{Generation(7), MemberId(2), MemberId(1), 3},
      Reached{Stage::kDeclared, ModelId(1)},
      AllReached{Stage::kDone, {}},
      Declare{ModelId(0),
              DeclaredLayers(),
              {0, 0x1234'5678'9abc'def0},
              "OpenBLAS",
              3e10,
              1.2e9,
              1e-4,
              8,
              7},
      Agreed{ModelId(0), DeclaredLayers(), PlanOf(2), 10},
      Measured{ModelId(0), {{1e-3, 2e-3, 64}, {0, 0, 0}}},
      Suspect{MemberId(3), true, false, 7, "a frame's payload fails its checksum"},
      Abort{Generation(7), -1, true, 6, "worker 2 on host b ended without saying why"},
      Echo{42, true},
      ProbeReport{1.25e8},
      Segment{ModelId(0), 4711, 12, 1ull << 40, 0x1234'5678'9abc'def0},
      Progress{2.5, 0.5, true, "evaluates", {{Wait::For::kFactors, ModelId(1), LayerId(3), Step(17), {MemberId(2)}}}},
      LaneAddress{1, 4711},
  };
}

TEST(Messages, EveryOneTravels) {
  const std::vector<Message> all = OneOfEach();
  ASSERT_EQ(all.size(), std::variant_size_v<Message>);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i].index(), i);
    EXPECT_EQ(Decode(Encode(all[i])).value(), all[i]) << "message " << i;
  }
}

TEST(Messages, EmptyListsAndTextsTravel) {
  for (const Message& message :
       {Message(Join{}), Message(Welcome{{}, MemberId(0), {RosterEntry{}}}), Message(Refuse{}),
        Message(Declare{}), Message(Agreed{{}, {}, PlanOf(0), 0}), Message(Measured{}),
        Message(Abort{.code = 1})}) {
    EXPECT_EQ(Decode(Encode(message)).value(), message) << "message " << message.index();
  }
}

TEST(Messages, EveryTruncationIsRefused) {
  for (const Message& message : OneOfEach()) {
    const ByteBuffer bytes = Encode(message);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_EQ(Decode(ConstBytes(bytes).first(size)).status().code(), StatusCode::kDataLoss)
          << "message " << message.index() << " cut at " << size;
    }
  }
}

TEST(Messages, BytesBehindTheEndAreRefused) {
  for (const Message& message : OneOfEach()) {
    ByteBuffer bytes = Encode(message);
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(Decode(bytes).ok()) << "message " << message.index();
  }
}

TEST(Messages, UnknownTypesAreRefused) {
  for (const unsigned type : {0u, static_cast<unsigned>(std::variant_size_v<Message>) + 1, 255u}) {
    EXPECT_EQ(Decode(ByteBuffer{static_cast<std::byte>(type)}).status().code(),
              StatusCode::kDataLoss)
        << type;
  }
}

// Counts and lengths that no message can have: refused before anything is allocated. Run under a
// sanitizer's allocation limit, or watch the clock: 2^32 layers would take minutes.
TEST(Messages, AbsurdLengthsAllocateNothing) {
  const auto type = [](const Message& message) {
    return static_cast<std::uint8_t>(message.index() + 1);
  };
  for (const std::uint32_t absurd : {0xffff'ffffu, 0x8000'0000u, 1u << 21, 5000u}) {
    ByteWriter welcome;
    welcome.U8(type(Welcome{}));
    welcome.U32(1);
    welcome.U16(0);
    welcome.F64(0);
    welcome.U32(absurd);
    EXPECT_FALSE(Decode(welcome.buffer()).ok());

    ByteWriter measured;
    measured.U8(type(Measured{}));
    measured.U16(0);
    measured.U32(absurd);
    EXPECT_FALSE(Decode(measured.buffer()).ok());

    ByteWriter declare;
    declare.U8(type(Declare{}));
    declare.U16(0);
    declare.U32(absurd);  // bytes of encoded layers
    EXPECT_FALSE(Decode(declare.buffer()).ok());

    ByteWriter refuse;
    refuse.U8(type(Refuse{}));
    refuse.U32(absurd);
    EXPECT_FALSE(Decode(refuse.buffer()).ok());
  }
}

// A text longer than the reader allows is cut by the writer, or the message could not be sent.
TEST(Messages, LongTextsAreCut) {
  const std::string novel(100'000, 'x');
  EXPECT_EQ(std::get<Refuse>(Decode(Encode(Refuse{novel})).value()).reason.size(), 4096u);
  EXPECT_EQ(std::get<Abort>(Decode(Encode(Abort{{}, 1, false, 4, novel})).value()).reason.size(),
            4096u);
  EXPECT_EQ(std::get<Suspect>(Decode(Encode(Suspect{{}, true, false, 4, novel})).value()).reason.size(),
            512u);
  EXPECT_EQ(
      std::get<Join>(Decode(Encode(Join{Role::kWorker, 0, novel, novel, 1})).value()).host.size(),
      255u);
}

TEST(Messages, IllegalValuesAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Message& message : {
           Message(Join{static_cast<Role>(3), 0, "", "", 0}),
           Message(Join{.bandwidth = nan}),
           Message(Welcome{{}, MemberId(0), {RosterEntry{}}, -1}),
           Message(Welcome{{}, MemberId(2), {RosterEntry{}, RosterEntry{}}}),
           Message(Declare{{}, DeclaredLayers(), {1}, "", 0, 0, 0, 1, 1}),
           Message(Agreed{{}, DeclaredLayers(), PlanOf(1), 0}),
           Message(Measured{{}, {{-1, 0, 0}}}),
           Message(Measured{{}, {{0, nan, 0}}}),
           Message(Abort{{}, 0, false, 99, ""}),
           Message(Suspect{{}, true, false, 99, ""}),
           Message(Abort{{}, 0, false, 0, "an orderly end"}),
           Message(ProbeReport{nan}),
           Message(ProbeReport{std::numeric_limits<double>::infinity()}),
           Message(Declare{{}, DeclaredLayers(), {1, 2}, "", 0, nan, 0, 1, 1}),
       }) {
    EXPECT_EQ(Decode(Encode(message)).status().code(), StatusCode::kDataLoss)
        << "message " << message.index();
  }
}

// Any bytes: refused, or decoded to what encodes to the same bytes.
TEST(Messages, DamagedBytesNeverSurprise) {
  std::vector<ByteBuffer> good;
  for (const Message& message : OneOfEach()) good.push_back(Encode(message));
  Random random(29);
  int accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    ByteBuffer bytes = good[random.Below(good.size())];
    if (i % 10 == 9) {
      bytes.resize(1 + random.Below(200));
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
      bytes[0] = static_cast<std::byte>(1 + random.Below(std::variant_size_v<Message>));
    }
    for (std::uint64_t flips = random.Below(4); flips > 0; --flips) {
      bytes[random.Below(bytes.size())] = static_cast<std::byte>(random());
    }
    if (random.Chance(0.1)) bytes.resize(random.Below(bytes.size() + 1));
    if (const auto message = Decode(bytes); message.ok()) {
      ++accepted;
      ASSERT_EQ(Encode(*message), bytes) << "message " << message->index();
    }
  }
  EXPECT_GT(accepted, 10'000);
}

}  // namespace
}  // namespace poseidon::wire
