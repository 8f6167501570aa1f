// SPDX-License-Identifier: Apache-2.0
#include "poseidon/messaging/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/base/random.h"
#include "poseidon/messaging/test_link.h"

namespace poseidon::messaging {
namespace {

using ::testing::HasSubstr;
using testing::TestLink;

ByteBuffer Pattern(std::size_t bytes, std::uint64_t seed) {
  ByteBuffer out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(Mix64(seed + i));
  return out;
}

// Records what came: frame headers in order, and each whole put together by its layer.
class Recorder final : public ChannelReceiver {
 public:
  Result<MutableBytes> PlaceFor(Channel&, const wire::FrameHeader& header) override {
    if (!refuse_place.ok()) return refuse_place;
    if (!own_memory) return MutableBytes{};
    landing.assign(header.length, std::byte{0});
    return MutableBytes(landing);
  }
  Status OnFrame(Channel&, const wire::FrameHeader& header, ConstBytes payload) override {
    EXPECT_EQ(closed, 0) << "a frame came after the end";
    EXPECT_EQ(payload.size(), header.length);
    if (own_memory && !payload.empty()) {
      EXPECT_EQ(payload.data(), landing.data());
    }
    frames.push_back(header);
    ByteBuffer& whole = wholes[header.layer.value()];
    EXPECT_EQ(header.offset, whole.size());
    whole.insert(whole.end(), payload.begin(), payload.end());
    return refuse_frame;
  }
  void OnSent(Channel&, const wire::FrameHeader& header, TimePoint) override {
    sent.push_back(header);
  }
  std::optional<Outgoing> LastWords(Channel&, const Status&) override { return std::exchange(last_words, {}); }
  void OnLoss(Channel&) override { ++losses; }
  void OnClosed(Channel&, const Status& reason) override {
    ++closed;
    closed_with = reason;
  }
  // The place in the order of arrival of the first frame of `layer`.
  std::size_t First(std::uint32_t layer) const {
    return static_cast<std::size_t>(
        std::find_if(frames.begin(), frames.end(),
                     [&](const auto& h) { return h.layer.value() == layer; }) -
        frames.begin());
  }

  bool own_memory = true;
  Status refuse_place;
  Status refuse_frame;
  std::optional<Outgoing> last_words;
  int losses = 0;
  ByteBuffer landing;
  std::vector<wire::FrameHeader> frames;
  std::vector<wire::FrameHeader> sent;
  std::map<std::uint32_t, ByteBuffer> wholes;
  int closed = 0;
  Status closed_with;
};

// How often each `left` fired and with what.
struct Left {
  int fired = 0;
  Status status;
  Completion completion() {
    return [this](Status s) {
      ++fired;
      status = std::move(s);
    };
  }
};

Outgoing Message(std::uint32_t layer, ConstBytes payload, Priority priority, Left* left = nullptr) {
  Outgoing out;
  out.header.type = wire::FrameType::kPush;
  out.header.layer = LayerId(layer);
  out.header.step = Step(priority.step);
  out.header.total = payload.size();
  out.payload = payload;
  out.priority = priority;
  if (left != nullptr) out.left = left->completion();
  return out;
}

Priority At(std::uint64_t step, std::uint32_t position) {
  return {Priority::kData, step, position};
}

class ChannelTest : public ::testing::Test {
 protected:
  // Two channels over one connection.
  void Join(Flow options, std::size_t buffer_bytes) {
    link_.emplace(buffer_bytes);
    link_->Connect();
    link_->OnLeft([&] {
      a_ = std::make_shared<Channel>(link_->left(), link_->TakeLeft(), options, at_a_);
      a_->Start();
    });
    link_->OnRight([&] {
      b_ = std::make_shared<Channel>(link_->right(), link_->TakeRight(), options, at_b_);
      b_->Start();
    });
  }
  // One channel, and the bare connection on the other side.
  void JoinBare(Flow options, std::size_t buffer_bytes) {
    link_.emplace(buffer_bytes);
    link_->Connect();
    bare_ = link_->TakeRight();
    link_->OnLeft([&] {
      a_ = std::make_shared<Channel>(link_->left(), link_->TakeLeft(), options, at_a_);
      a_->Start();
    });
  }
  void Send(Outgoing message) {
    link_->OnLeft([this, message = std::make_shared<Outgoing>(std::move(message))] {
      a_->Send(std::move(*message));
    });
  }
  void TearDown() override {
    if (!link_) return;
    if (a_) link_->OnLeft([this] { a_->Close(OkStatus()); });
    if (b_) link_->OnRight([this] { b_->Close(OkStatus()); });
    if (bare_) link_->OnRight([this] { bare_.reset(); });
    link_->Run();
    if (a_) {
      EXPECT_EQ(at_a_.closed, 1);
      EXPECT_EQ(a_.use_count(), 1) << "somebody still holds the channel";
    }
    if (b_) {
      EXPECT_EQ(at_b_.closed, 1);
    }
  }

  Recorder at_a_;
  Recorder at_b_;
  std::optional<TestLink> link_;
  std::shared_ptr<Channel> a_;
  std::shared_ptr<Channel> b_;
  std::unique_ptr<transport::Connection> bare_;
};

TEST_F(ChannelTest, CutsMessagesIntoFrames) {
  Join({.chunk_bytes = 1000, .write_bytes = 4000}, 1 << 16);
  const ByteBuffer payload = Pattern(10'001, 1);
  Left left;
  Send(Message(7, payload, At(0, 0), &left));
  link_->Run();
  ASSERT_EQ(at_b_.frames.size(), 11u);
  EXPECT_EQ(at_b_.wholes[7], payload);
  for (std::size_t i = 0; i < 11; ++i) {
    EXPECT_EQ(at_b_.frames[i].offset, 1000 * i);
    EXPECT_EQ(at_b_.frames[i].total, 10'001u);
    EXPECT_EQ(at_b_.frames[i].length, i < 10 ? 1000u : 1u);
  }
  EXPECT_EQ(at_a_.sent.size(), 11u);
  EXPECT_EQ(left.fired, 1);
  EXPECT_TRUE(left.status.ok());
  EXPECT_TRUE(a_->idle());
}

// A slice of something larger: its frames continue from the offset it begins at.
TEST_F(ChannelTest, OffsetsContinueFromTheMessagesOwn) {
  Join({.chunk_bytes = 100, .write_bytes = 100}, 1 << 16);
  const ByteBuffer payload = Pattern(250, 1);
  Outgoing out = Message(1, payload, At(0, 0));
  out.header.offset = 5000;
  out.header.total = 9000;
  at_b_.wholes[1].resize(5000);
  Send(std::move(out));
  link_->Run();
  ASSERT_EQ(at_b_.frames.size(), 3u);
  EXPECT_EQ(at_b_.frames[2].offset, 5200u);
  EXPECT_EQ(at_b_.frames[2].total, 9000u);
}

TEST_F(ChannelTest, AMessageWithoutPayloadIsOneFrame) {
  Join({}, 1 << 16);
  Left left;
  Outgoing out = Message(3, {}, At(0, 0), &left);
  out.header.flags = wire::kFlagAbsent;
  Send(std::move(out));
  link_->Run();
  ASSERT_EQ(at_b_.frames.size(), 1u);
  EXPECT_EQ(at_b_.frames[0].length, 0u);
  EXPECT_EQ(at_b_.frames[0].flags, wire::kFlagAbsent);
  EXPECT_EQ(left.fired, 1);
}

TEST_F(ChannelTest, LastFlagsAreThoseOfTheLastFrame) {
  Join({.chunk_bytes = 100, .write_bytes = 100}, 1 << 16);
  const ByteBuffer payload = Pattern(250, 1);
  Outgoing out = Message(1, payload, At(0, 0));
  out.last_flags = wire::kFlagHeld;
  Send(std::move(out));
  link_->Run();
  ASSERT_EQ(at_b_.frames.size(), 3u);
  EXPECT_EQ(at_b_.frames[0].flags, 0u);
  EXPECT_EQ(at_b_.frames[1].flags, 0u);
  EXPECT_EQ(at_b_.frames[2].flags, wire::kFlagHeld);
}

TEST_F(ChannelTest, AMessageMayOwnItsPayload) {
  Join({.chunk_bytes = 10, .write_bytes = 10}, 1 << 16);
  Outgoing out = Message(3, {}, At(0, 0));
  out.owned = Pattern(99, 3);
  out.header.total = 99;
  Send(std::move(out));
  link_->Run();
  EXPECT_EQ(at_b_.wholes[3], Pattern(99, 3));
}

// The reason for chunks: between two writes the urgent message goes first, however much is queued before it.
TEST_F(ChannelTest, AnUrgentMessageOvertakesALargeOneBetweenTwoWrites) {
  Join({.chunk_bytes = 1000, .write_bytes = 2000}, 4096);
  const ByteBuffer large = Pattern(100'000, 1);
  const ByteBuffer urgent = Pattern(500, 2);
  Send(Message(9, large, At(5, 9)));
  link_->RunUntil([this] { return at_b_.frames.size() >= 10; });
  ASSERT_LT(at_b_.frames.size(), 50u);
  std::size_t sent_before = 0;
  link_->OnLeft([&] {
    sent_before = at_a_.sent.size();
    a_->Send(Message(1, urgent, At(5, 1)));
  });
  link_->Run();
  EXPECT_EQ(at_b_.wholes[9], large);
  EXPECT_EQ(at_b_.wholes[1], urgent);
  // One write of two frames was under way.
  EXPECT_LE(at_b_.First(1), sent_before + 2);
}

TEST_F(ChannelTest, TheOlderStepGoesBeforeTheLowerLayerAndControlBeforeAll) {
  Join({.chunk_bytes = 100, .write_bytes = 100}, 256);
  const ByteBuffer payload = Pattern(300, 1);
  const ByteBuffer first = Pattern(1000, 1);
  link_->OnLeft([&] {
    a_->Send(Message(0, first, At(6, 0)));  // leaves behind what becomes ready in the same task
    a_->Send(Message(1, payload, At(6, 1)));
    a_->Send(Message(2, payload, At(5, 9)));
    a_->Send(Message(3, payload, kControlPriority));
    a_->Send(Message(4, payload, At(5, 2)));
  });
  link_->Run();
  std::vector<std::uint32_t> order;
  for (const auto& h : at_b_.frames) {
    if (order.empty() || order.back() != h.layer.value()) order.push_back(h.layer.value());
  }
  EXPECT_EQ(order, (std::vector<std::uint32_t>{3, 4, 2, 0, 1}));
}

// Counts what is asked of a connection.
class CountedConnection final : public transport::Connection {
 public:
  struct Calls {
    std::vector<std::size_t> reads;  // the room behind what each one waits for
    int writes = 0;
    std::vector<double> paces;
    std::vector<std::size_t> buffers;
    bool loses_bytes = false;
  };
  CountedConnection(std::unique_ptr<transport::Connection> inner, Calls& calls) : inner_(std::move(inner)), calls_(calls) {}
  void Read(std::span<const MutableBytes> into, std::size_t min_bytes, transport::ReadCompletion done) override {
    std::size_t room = 0;
    for (const MutableBytes& buffer : into) room += buffer.size();
    calls_.reads.push_back(room - min_bytes);
    inner_->Read(into, min_bytes, std::move(done));
  }
  void Write(std::span<const ConstBytes> from, Completion done) override {
    ++calls_.writes;
    inner_->Write(from, std::move(done));
  }
  void Close(Status reason) override { inner_->Close(std::move(reason)); }
  void LimitUndelivered(std::size_t bytes) override {
    calls_.buffers.push_back(bytes);
    inner_->LimitUndelivered(bytes);
  }
  bool LosesBytes() override { return calls_.loses_bytes; }
  void Pace(double bytes_per_second) override { calls_.paces.push_back(bytes_per_second); }
  const std::string& peer_name() const override { return inner_->peer_name(); }
  transport::ConnectionCounters counters() const override { return inner_->counters(); }

 private:
  const std::unique_ptr<transport::Connection> inner_;
  Calls& calls_;
};

class CountedCalls : public ChannelTest {
 protected:
  void JoinCounted() {
    link_.emplace(std::size_t{1} << 20);
    link_->Connect();
    link_->OnLeft([&] {
      a_ = std::make_shared<Channel>(link_->left(), std::make_unique<CountedConnection>(link_->TakeLeft(), of_a_), Flow{}, at_a_);
      a_->Start();
    });
    link_->OnRight([&] {
      b_ = std::make_shared<Channel>(link_->right(), std::make_unique<CountedConnection>(link_->TakeRight(), of_b_), Flow{}, at_b_);
      b_->Start();
    });
    link_->Run();
  }
  void SendTogether(const std::vector<ByteBuffer>& payloads) {
    link_->OnLeft([&] {
      for (std::uint32_t i = 0; i < payloads.size(); ++i) a_->Send(Message(i, payloads[i], At(0, i)));
    });
    link_->Run();
    for (std::uint32_t i = 0; i < payloads.size(); ++i) EXPECT_EQ(at_b_.wholes[i], payloads[i]) << i;
  }
  CountedConnection::Calls of_a_;
  CountedConnection::Calls of_b_;
};

TEST_F(CountedCalls, WhatIsReadyTogetherLeavesInOneWriteAndIsReadInOneCall) {
  JoinCounted();
  std::vector<ByteBuffer> payloads;
  for (std::uint32_t i = 0; i < 20; ++i) payloads.push_back(Pattern(i % 7 == 0 ? 0 : 300 + i, i));
  SendTogether(payloads);
  EXPECT_EQ(of_a_.writes, 1);
  EXPECT_EQ(of_b_.reads.size(), 2u);  // the second one waits for what follows
}

TEST_F(CountedCalls, AReadBringsAsManySmallFramesAsItHasRoomFor) {
  JoinCounted();
  std::vector<ByteBuffer> payloads;
  for (std::uint32_t i = 0; i < 100; ++i) payloads.push_back(Pattern(1000, i));
  SendTogether(payloads);
  EXPECT_EQ(of_a_.writes, 1);
  EXPECT_LE(of_b_.reads.size(), 9u) << "for 106 KB";
}

// A byte of a large payload that was read ahead would be copied: behind a large frame only the next header is read.
TEST_F(CountedCalls, LargePayloadsGoStraightToTheirPlaces) {
  JoinCounted();
  const std::vector<ByteBuffer> payloads = {Pattern(100'000, 1), Pattern(100'000, 2), Pattern(100'000, 3)};
  SendTogether(payloads);
  EXPECT_THAT(of_b_.reads, ::testing::ElementsAre(16'384 - 64, 64, 64, 64, 0));
}

// The flow changes twice in every step, the pace with a plan: a call of the system for the latter alone.
TEST_F(CountedCalls, APaceIsSetWhereItChanges) {
  JoinCounted();
  link_->OnLeft([&] {
    for (const double pace : {0.0, 3e6, 3e6, 0.0}) a_->SetFlow({.pace = pace});
  });
  link_->Run();
  EXPECT_THAT(of_a_.paces, ::testing::ElementsAre(3e6, 0.0));
}

// As the mesh answers OnLoss.
TEST_F(CountedCalls, AConnectionThatLosesBytesCommitsLittle) {
  JoinCounted();
  const ByteBuffer payload = Pattern(250, 1);
  const auto sends = [&] {
    at_b_.frames.clear();
    at_b_.wholes.clear();
    link_->OnLeft([&] { a_->Send(Message(0, payload, At(0, 0))); });
    link_->Run();
    return at_b_.frames.size();
  };
  const auto flow = [&](std::size_t chunk) {
    link_->OnLeft([&] {
      a_->SetFlow({.chunk_bytes = chunk, .write_bytes = chunk, .send_buffer_bytes = chunk, .lossy_chunk_bytes = 50, .lossy_send_buffer_bytes = 60});
    });
  };
  flow(100);
  EXPECT_EQ(sends(), 3u);
  EXPECT_EQ(at_a_.losses, 0);
  of_a_.loses_bytes = true;
  EXPECT_EQ(sends(), 3u);
  EXPECT_EQ(at_a_.losses, 1);
  link_->OnLeft([&] { a_->CommitLittle(); });
  EXPECT_EQ(sends(), 5u);
  flow(200);
  EXPECT_EQ(sends(), 5u) << "it stays so";
  EXPECT_EQ(at_a_.losses, 1) << "once";
  EXPECT_THAT(of_a_.buffers, ::testing::ElementsAre(100, 60, 60));
}

TEST_F(CountedCalls, AHeldConnectionHasTheLesserPace) {
  JoinCounted();
  link_->OnLeft([&] {
    a_->Hold(2e6);
    for (const double pace : {0.0, 3e6, 1e6}) a_->SetFlow({.pace = pace});
    a_->Hold(0);
  });
  link_->Run();
  EXPECT_THAT(of_a_.paces, ::testing::ElementsAre(2e6, 1e6));
}

TEST_F(ChannelTest, MessagesOfOnePriorityLeaveInTheOrderOfTheCalls) {
  Join({.chunk_bytes = 64, .write_bytes = 200}, 128);
  std::vector<ByteBuffer> payloads;
  for (std::uint32_t i = 0; i < 20; ++i) payloads.push_back(Pattern(i % 3 == 0 ? 0 : i * 37, i));
  link_->OnLeft([&] {
    for (std::uint32_t i = 0; i < 20; ++i) a_->Send(Message(i, payloads[i], At(1, 1)));
  });
  link_->Run();
  for (std::uint32_t i = 0; i < 20; ++i) EXPECT_EQ(at_b_.wholes[i], payloads[i]);
  EXPECT_TRUE(std::is_sorted(at_b_.frames.begin(), at_b_.frames.end(),
                             [](const auto& x, const auto& y) { return x.layer < y.layer; }));
}

// Lent memory is read until `left` fires, and never afterwards.
TEST_F(ChannelTest, LeftFiresOnlyAfterTheBytesHaveLeft) {
  constexpr std::size_t kBuffer = 1024;
  JoinBare({.chunk_bytes = 700, .write_bytes = 1400}, kBuffer);
  ByteBuffer payload = Pattern(10'000, 4);
  Left left;
  Send(Message(1, payload, At(0, 0), &left));
  const std::size_t whole = 10'000 + 15 * wire::kHeaderBytes;
  ByteBuffer received;
  while (received.size() < whole) {
    link_->Run();  // until nothing moves any more
    ASSERT_EQ(left.fired == 1, received.size() + kBuffer >= whole) << received.size();
    if (left.fired == 1) std::fill(payload.begin(), payload.end(), std::byte{0});
    std::array<std::byte, 100> piece;
    std::size_t count = 0;
    link_->OnRight([&] {
      const std::array<MutableBytes, 1> into = {
          MutableBytes(piece).first(std::min(piece.size(), whole - received.size()))};
      bare_->Read(into, 1, [&](Status status, std::size_t n) {
        EXPECT_TRUE(status.ok());
        count = n;
      });
    });
    link_->Run();
    received.insert(received.end(), piece.begin(), piece.begin() + static_cast<int>(count));
  }
  EXPECT_EQ(left.fired, 1);
  const ByteBuffer original = Pattern(10'000, 4);
  for (std::size_t frame = 0; frame < 15; ++frame) {
    const std::byte* const begin = received.data() + frame * (700 + wire::kHeaderBytes);
    const std::size_t length = frame < 14 ? 700 : 200;
    EXPECT_EQ(std::memcmp(begin + wire::kHeaderBytes, original.data() + 700 * frame, length), 0);
  }
}

TEST_F(ChannelTest, CloseCompletesEverythingExactlyOnce) {
  Join({.chunk_bytes = 100, .write_bytes = 300}, 512);
  const ByteBuffer payload = Pattern(5000, 1);
  std::vector<Left> lefts(6);
  bool inside = false;
  link_->OnLeft([&] {
    for (std::size_t i = 0; i < 5; ++i) {
      a_->Send(Message(static_cast<std::uint32_t>(i), payload, At(0, 0), &lefts[i]));
    }
  });
  link_->RunUntil([this] { return at_b_.frames.size() > 70; });
  EXPECT_EQ(lefts[0].fired, 1);
  EXPECT_EQ(lefts[2].fired, 0);
  link_->OnLeft([&] {
    inside = true;
    a_->Close(Status(StatusCode::kAborted, "enough"));
    a_->Send(Message(0, payload, At(0, 0), &lefts[5]));
    a_->Close(Status(StatusCode::kInternal, "again"));
    EXPECT_EQ(at_a_.closed, 0) << "never inside the call";
    EXPECT_EQ(lefts[4].fired + lefts[5].fired, 0) << "never inside the call";
    inside = false;
  });
  link_->Run();
  for (const Left& left : lefts) EXPECT_EQ(left.fired, 1);
  EXPECT_TRUE(lefts[0].status.ok());
  EXPECT_EQ(lefts[4].status.message(), "enough");
  EXPECT_EQ(lefts[5].status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(at_a_.closed, 1);
  EXPECT_EQ(at_a_.closed_with.message(), "enough") << "the first reason stays";
  EXPECT_EQ(at_b_.closed, 1);
  EXPECT_EQ(at_b_.closed_with.code(), StatusCode::kUnavailable);
}

// Without a reason the messages that did not leave still fail.
TEST_F(ChannelTest, AnOrderlyCloseFailsWhatDidNotLeave) {
  Join({.chunk_bytes = 100, .write_bytes = 100}, 64);
  const ByteBuffer payload = Pattern(5000, 1);
  Left left;
  link_->OnLeft([&] {
    a_->Send(Message(0, payload, At(0, 0), &left));
    a_->Close(OkStatus());
  });
  link_->Run();
  EXPECT_EQ(left.fired, 1);
  EXPECT_EQ(left.status.code(), StatusCode::kUnavailable);
}

TEST_F(ChannelTest, CloseWhenDrainedLetsEverythingLeave) {
  Join({.chunk_bytes = 100, .write_bytes = 300}, 128);
  const ByteBuffer payload = Pattern(5000, 1);
  std::vector<Left> lefts(3);
  link_->OnLeft([&] {
    for (std::uint32_t i = 0; i < 3; ++i) a_->Send(Message(i, payload, At(0, i), &lefts[i]));
    a_->CloseWhenDrained(Status(StatusCode::kAborted, "done"));
    EXPECT_FALSE(a_->closed());
  });
  link_->Run();
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(lefts[i].status.ok());
    EXPECT_EQ(lefts[i].fired, 1);
    EXPECT_EQ(at_b_.wholes[i], payload);
  }
  EXPECT_EQ(at_a_.closed, 1);
  EXPECT_EQ(at_a_.closed_with.message(), "done");
  EXPECT_EQ(at_b_.closed, 1);
}

TEST_F(ChannelTest, AnIdleChannelClosesWhenDrainedAtOnce) {
  Join({}, 128);
  link_->OnLeft([&] {
    a_->CloseWhenDrained(OkStatus());
    EXPECT_TRUE(a_->closed());
  });
  link_->Run();
  EXPECT_EQ(at_b_.closed, 1);
}

TEST_F(ChannelTest, ADetachedChannelSaysNothing) {
  Join({.chunk_bytes = 100, .write_bytes = 100}, 64);
  const ByteBuffer payload = Pattern(5000, 1);
  Left left;
  link_->OnLeft([&] {
    a_->Send(Message(0, payload, At(0, 0), &left));
    a_->Detach();
    a_->Close(OkStatus());
  });
  link_->Run();
  EXPECT_EQ(at_a_.closed, 0);
  EXPECT_EQ(left.fired, 1);
  at_a_.closed = 1;  // for TearDown
}

// ---- what a broken or hostile peer might send

ByteBuffer FrameBytes(wire::FrameHeader header, ConstBytes payload) {
  header.length = static_cast<std::uint32_t>(payload.size());
  header.total = std::max<std::uint64_t>(header.total, payload.size());
  std::array<std::byte, wire::kHeaderBytes> raw;
  wire::EncodeHeader(header, raw);
  ByteBuffer out(raw.begin(), raw.end());
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

class HostilePeer : public ChannelTest {
 protected:
  void WriteBare(ByteBuffer bytes) {
    sent_bytes_ = std::move(bytes);
    link_->OnRight([this] {
      const std::array<ConstBytes, 1> from = {ConstBytes(sent_bytes_)};
      bare_->Write(from, [](Status) {});
    });
    link_->Run();
  }
  wire::FrameHeader PushHeader() {
    wire::FrameHeader h;
    h.type = wire::FrameType::kPush;
    return h;
  }
  ByteBuffer sent_bytes_;
};

TEST_F(HostilePeer, ABadHeaderEndsTheChannel) {
  JoinBare({}, 4096);
  ByteBuffer bytes = FrameBytes(PushHeader(), Pattern(100, 1));
  bytes[20] ^= std::byte{1};
  WriteBare(std::move(bytes));
  EXPECT_EQ(at_a_.closed, 1);
  EXPECT_EQ(at_a_.closed_with.code(), StatusCode::kDataLoss);
}

TEST_F(HostilePeer, ARefusedPlaceOrFrameEndsTheChannel) {
  JoinBare({}, 4096);
  at_a_.refuse_place = DataLoss("no room");
  WriteBare(FrameBytes(PushHeader(), Pattern(10, 1)));
  EXPECT_EQ(at_a_.closed_with.message(), "no room");
  EXPECT_TRUE(at_a_.frames.empty());
}

TEST_F(HostilePeer, ARefusedFrameEndsTheChannel) {
  JoinBare({}, 4096);
  at_a_.refuse_frame = DataLoss("not that");
  ByteBuffer two = FrameBytes(PushHeader(), Pattern(10, 1));
  const ByteBuffer second = FrameBytes(PushHeader(), Pattern(10, 2));
  two.insert(two.end(), second.begin(), second.end());
  WriteBare(std::move(two));
  EXPECT_EQ(at_a_.closed_with.message(), "not that");
  EXPECT_EQ(at_a_.frames.size(), 1u) << "nothing follows the end";
}

// A connection one direction of which fails.
class HalfConnection final : public transport::Connection {
 public:
  HalfConnection(Executor& executor, std::unique_ptr<transport::Connection> inner, Status read, Status write)
      : executor_(executor), inner_(std::move(inner)), read_(std::move(read)), write_(std::move(write)) {}
  void Read(std::span<const MutableBytes> into, std::size_t min_bytes, transport::ReadCompletion done) override {
    if (read_.ok()) return inner_->Read(into, min_bytes, std::move(done));
    executor_.Post([done = std::move(done), status = read_] { done(status, 0); });
  }
  void Write(std::span<const ConstBytes> from, Completion done) override {
    if (write_.ok()) return inner_->Write(from, std::move(done));
    executor_.Post([done = std::move(done), status = write_] { done(status); });
  }
  void Close(Status reason) override { inner_->Close(std::move(reason)); }
  void LimitUndelivered(std::size_t) override {}
  const std::string& peer_name() const override { return inner_->peer_name(); }
  transport::ConnectionCounters counters() const override { return inner_->counters(); }

 private:
  Executor& executor_;
  const std::unique_ptr<transport::Connection> inner_;
  const Status read_;
  const Status write_;
};

TEST_F(HostilePeer, OneWhoseBytesWereChangedIsToldWhy) {
  link_.emplace(4096);
  link_->Connect();
  bare_ = link_->TakeRight();
  const Status changed = DataLoss("bytes were changed");
  const ByteBuffer words = Pattern(30, 1);
  at_a_.last_words = Message(7, words, kControlPriority);
  link_->OnLeft([&] {
    auto half = std::make_unique<HalfConnection>(link_->left(), link_->TakeLeft(), changed, OkStatus());
    a_ = std::make_shared<Channel>(link_->left(), std::move(half), Flow{}, at_a_);
    a_->Start();
  });
  link_->Run();
  EXPECT_EQ(at_a_.closed, 1);
  EXPECT_EQ(at_a_.closed_with, changed);
  EXPECT_EQ(at_a_.sent.size(), 1u);
}

// A reset fails our write while what the peer said before it is still unread.
TEST_F(HostilePeer, LastWordsAreReadAfterAFailedWrite) {
  link_.emplace(4096);
  link_->Connect();
  bare_ = link_->TakeRight();
  link_->OnLeft([this] {
    auto half = std::make_unique<HalfConnection>(link_->left(), link_->TakeLeft(), OkStatus(),
                                                 Unavailable("the connection was reset"));
    a_ = std::make_shared<Channel>(link_->left(), std::move(half), Flow{}, at_a_);
    a_->Start();
  });
  const ByteBuffer payload = Pattern(100, 1);
  std::array<Left, 3> left;
  Send(Message(0, payload, At(0, 0), &left[0]));
  Send(Message(1, payload, At(0, 1), &left[1]));
  link_->Run();
  EXPECT_EQ(at_a_.closed, 0);
  Send(Message(2, payload, At(0, 2), &left[2]));
  WriteBare(FrameBytes(PushHeader(), payload));
  EXPECT_EQ(at_a_.frames.size(), 1u);
  for (const Left& one : left) {
    EXPECT_EQ(one.fired, 1);
    EXPECT_FALSE(one.status.ok());
  }
  link_->OnRight([this] { bare_.reset(); });
  link_->Run();
  EXPECT_EQ(at_a_.closed, 1);
}

TEST_F(HostilePeer, AnEndInTheMiddleOfAFrameIsAnEnd) {
  for (const std::size_t cut : {1u, 63u, 64u, 100u}) {
    at_a_ = Recorder();
    JoinBare({}, 4096);
    ByteBuffer bytes = FrameBytes(PushHeader(), Pattern(100, 1));
    bytes.resize(cut);
    WriteBare(std::move(bytes));
    EXPECT_EQ(at_a_.closed, 0);
    link_->OnRight([this] { bare_.reset(); });
    link_->Run();
    EXPECT_EQ(at_a_.closed, 1) << cut;
    EXPECT_EQ(at_a_.closed_with.code(), StatusCode::kUnavailable);
    EXPECT_TRUE(at_a_.frames.empty());
  }
}

// A peer's last message counts, also where a write to it fails before it has been read: an ABORT or
// a goodbye would otherwise look like a sudden death.
TEST_F(HostilePeer, LastWordsAreReadThoughWritesFail) {
  JoinBare({}, 1024);
  const ByteBuffer payload = Pattern(100'000, 1);
  std::vector<Left> lefts(3);
  link_->OnLeft([&] {
    a_->Send(Message(0, payload, At(0, 0), &lefts[0]));
    a_->Send(Message(0, payload, At(0, 1), &lefts[1]));
  });
  link_->Run();
  ByteBuffer words;
  for (std::uint32_t i = 1; i <= 5; ++i) {
    wire::FrameHeader header = PushHeader();
    header.layer = LayerId(i);
    const ByteBuffer frame = FrameBytes(header, Pattern(10, i));
    words.insert(words.end(), frame.begin(), frame.end());
  }
  WriteBare(std::move(words));
  at_a_.frames.clear();  // read already; the next ones arrive together with the end
  at_a_.wholes.clear();
  ByteBuffer last;
  for (std::uint32_t i = 6; i <= 9; ++i) {
    wire::FrameHeader header = PushHeader();
    header.layer = LayerId(i);
    const ByteBuffer frame = FrameBytes(header, Pattern(10, i));
    last.insert(last.end(), frame.begin(), frame.end());
  }
  link_->OnRight([&] {
    const std::array<ConstBytes, 1> from = {ConstBytes(last)};
    bare_->Write(from, [&](Status status) {
      EXPECT_TRUE(status.ok());
      bare_.reset();
    });
  });
  link_->Run();
  EXPECT_EQ(at_a_.frames.size(), 4u);
  EXPECT_EQ(at_a_.closed, 1);
  EXPECT_EQ(lefts[0].fired, 1);
  EXPECT_EQ(lefts[1].fired, 1);
  EXPECT_FALSE(lefts[0].status.ok());
  EXPECT_FALSE(lefts[1].status.ok());
}

// ---- options

// No setting may make a frame that a peer refuses, or one that never ends.
TEST_F(ChannelTest, ChunksStayWithinTheProtocolsBounds) {
  for (const std::size_t chunk : {std::size_t{0}, std::size_t{1} << 30}) {
    SCOPED_TRACE(chunk);
    Recorder from;
    Recorder to;
    TestLink link(1 << 16);
    link.Connect();
    const Flow options{.chunk_bytes = chunk, .write_bytes = chunk};
    std::shared_ptr<Channel> a;
    std::shared_ptr<Channel> b;
    const ByteBuffer payload = Pattern(chunk == 0 ? 50 : (3u << 20) + 1, 1);
    link.OnRight([&] {
      b = std::make_shared<Channel>(link.right(), link.TakeRight(), options, to);
      b->Start();
    });
    link.OnLeft([&] {
      a = std::make_shared<Channel>(link.left(), link.TakeLeft(), options, from);
      a->Start();
      a->Send(Message(1, payload, At(0, 0)));
    });
    link.RunUntil([&] { return to.wholes[1].size() == payload.size() || to.closed > 0; });
    EXPECT_TRUE(to.wholes[1] == payload);
    link.OnLeft([&] { a->Close(OkStatus()); });
    link.OnRight([&] { b->Close(OkStatus()); });
    link.Run();
  }
}

// Any sizes, priorities, chunks and pipes, both ways at once: everything arrives,
// unharmed, and each `left` fires once.
TEST(Channels, EverythingArrivesWhateverTheSizes) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Flow options{.chunk_bytes = 1 + random.Below(3000),
                       .write_bytes = 1 + random.Below(6000)};
    TestLink link(1 + random.Below(random.Chance(0.3) ? 16 : 8192), seed);
    link.Connect();
    std::array<Recorder, 2> recorders;
    recorders[1].own_memory = random.Chance(0.5);
    std::array<std::shared_ptr<Channel>, 2> channels;
    std::array<std::vector<ByteBuffer>, 2> payloads;
    std::array<std::vector<Left>, 2> lefts;
    for (std::size_t side = 0; side < 2; ++side) {
      const std::uint64_t count = 1 + random.Below(20);
      lefts[side].resize(count);
      for (std::uint64_t i = 0; i < count; ++i) {
        payloads[side].push_back(Pattern(random.Chance(0.1) ? 0 : random.Below(4000), random()));
      }
    }
    link.OnLeft([&] {
      channels[0] = std::make_shared<Channel>(link.left(), link.TakeLeft(), options, recorders[0]);
      channels[0]->Start();
    });
    link.OnRight([&] {
      channels[1] = std::make_shared<Channel>(link.right(), link.TakeRight(), options, recorders[1]);
      channels[1]->Start();
    });
    for (std::size_t side = 0; side < 2; ++side) {
      for (std::uint32_t i = 0; i < payloads[side].size(); ++i) {
        const Priority priority = At(random.Below(3), static_cast<std::uint32_t>(random.Below(3)));
        const auto send = [&, side, i, priority] {
          channels[side]->Send(Message(i, payloads[side][i], priority, &lefts[side][i]));
        };
        side == 0 ? link.OnLeft(send) : link.OnRight(send);
        for (std::uint64_t events = random.Below(30); events > 0; --events) link.Step();
      }
    }
    link.Run();
    for (std::size_t side = 0; side < 2; ++side) {
      EXPECT_EQ(recorders[1 - side].closed, 0) << recorders[1 - side].closed_with.ToString();
      for (std::uint32_t i = 0; i < payloads[side].size(); ++i) {
        EXPECT_TRUE(recorders[1 - side].wholes[i] == payloads[side][i]);
        EXPECT_EQ(lefts[side][i].fired, 1);
      }
    }
    link.OnLeft([&] { channels[0]->Close(OkStatus()); });
    link.OnRight([&] { channels[1]->Close(OkStatus()); });
    link.Run();
  }
}

}  // namespace
}  // namespace poseidon::messaging
