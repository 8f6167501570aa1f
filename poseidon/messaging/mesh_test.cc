// SPDX-License-Identifier: Apache-2.0
#include "poseidon/messaging/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/messaging/test_link.h"

namespace poseidon::messaging {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing::TestLink;

constexpr MemberId kPeer{3};

// Collects what the mesh reports; identifies whoever introduces itself with "hello".
class Owner final : public MeshObserver {
 public:
  Status OnControl(MemberId from, ConstBytes message) override {
    EXPECT_EQ(from, kPeer);
    controls.push_back(AsString(message));
    return refuse_control;
  }
  Status OnIntroduction(const std::shared_ptr<Channel>& stranger, ConstBytes message) override {
    introductions.push_back(AsString(message));
    if (AsString(message.first(std::min<std::size_t>(message.size(), 5))) != "hello") {
      return DataLoss("no hello");
    }
    EXPECT_TRUE(!identifies || mesh->Identify(stranger, kPeer));
    return OkStatus();
  }
  void OnPeerClosed(MemberId peer, const Status& reason) override {
    EXPECT_EQ(peer, kPeer);
    ++peers_closed;
    closed_with = reason;
  }
  void OnStrangerClosed(const Channel& stranger, const Status& reason) override {
    strangers_closed.push_back(&stranger);
    closed_with = reason;
  }

  Mesh* mesh = nullptr;
  bool identifies = true;
  std::vector<std::string> controls;
  std::vector<std::string> introductions;
  Status refuse_control;
  int peers_closed = 0;
  std::vector<const Channel*> strangers_closed;
  Status closed_with;
};

class Sink final : public FrameSink {
 public:
  Result<MutableBytes> PlaceFor(MemberId, const wire::FrameHeader& header) override {
    ++places;
    memory.resize(header.length);
    return MutableBytes(memory);
  }
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes) override {
    EXPECT_EQ(from, kPeer);
    frames.push_back(header);
    return refuse;
  }
  Status refuse;
  ByteBuffer memory;
  std::vector<wire::FrameHeader> frames;
  int places = 0;
};

// A mesh on the left; on the right a bare connection that writes what it likes.
class MeshTest : public ::testing::Test {
 protected:
  void SetUp() override {
    link_.Connect();
    link_.OnLeft([this] {
      mesh_ =
          std::make_unique<Mesh>(link_.left(), MeshOptions{.flow = {.chunk_bytes = 1000}}, owner_);
      owner_.mesh = mesh_.get();
      mesh_->set_generation(Generation(7));
      mesh_->Route(wire::FrameType::kPush, sink_);
      stranger_ = mesh_->AddStranger(link_.TakeLeft());
    });
    link_.OnRight([this] { bare_ = link_.TakeRight(); });
    link_.Run();
  }
  void TearDown() override {
    link_.OnLeft([this] {
      stranger_.reset();
      mesh_.reset();
    });
    link_.OnRight([this] { bare_.reset(); });
    link_.Run();
  }

  static wire::FrameHeader Control(std::uint64_t offset, std::uint64_t total) {
    wire::FrameHeader h;
    h.type = wire::FrameType::kControl;
    h.offset = offset;
    h.total = total;
    return h;
  }
  static wire::FrameHeader Push() {
    wire::FrameHeader h;
    h.type = wire::FrameType::kPush;
    h.generation = Generation(7);
    h.total = 1 << 20;
    return h;
  }
  void WriteFrame(wire::FrameHeader header, std::string_view payload) {
    header.length = static_cast<std::uint32_t>(payload.size());
    std::array<std::byte, wire::kHeaderBytes> raw;
    wire::EncodeHeader(header, raw);
    link_.OnRight([&] {
      const std::array<ConstBytes, 2> from = {ConstBytes(raw), AsBytes(payload)};
      bare_->Write(from, [](Status) {});
    });
    link_.Run();
  }
  void Introduce() { WriteFrame(Control(0, 5), "hello"); }

  Owner owner_;
  Sink sink_;
  TestLink link_{4 << 20};
  std::unique_ptr<Mesh> mesh_;
  std::shared_ptr<Channel> stranger_;
  std::unique_ptr<transport::Connection> bare_;
};

TEST_F(MeshTest, AnIntroductionGivesAConnectionItsName) {
  EXPECT_EQ(mesh_->strangers(), 1u);
  EXPECT_FALSE(mesh_->HasPeer(kPeer));
  Introduce();
  EXPECT_THAT(owner_.introductions, ElementsAre("hello"));
  EXPECT_TRUE(mesh_->HasPeer(kPeer));
  EXPECT_EQ(mesh_->strangers(), 0u);
  WriteFrame(Control(0, 4), "next");
  EXPECT_THAT(owner_.controls, ElementsAre("next"));
  link_.OnLeft([this] { EXPECT_FALSE(mesh_->Identify(stranger_, kPeer)) << "it has one already"; });
}

TEST_F(MeshTest, ControlMessagesAreAssembledFromAnyPieces) {
  Introduce();
  const std::string message = "a message in many pieces";
  for (std::size_t i = 0; i < message.size(); ++i) {
    EXPECT_TRUE(owner_.controls.empty());
    WriteFrame(Control(i, message.size()), message.substr(i, 1));
  }
  EXPECT_THAT(owner_.controls, ElementsAre(message));
  WriteFrame(Control(0, 3), "two");
  EXPECT_THAT(owner_.controls, ElementsAre(message, "two"));
}

TEST_F(MeshTest, AStrangerMayNotAnnounceMuch) {
  WriteFrame(Control(0, 64 * 1024 + 1), "hello");
  EXPECT_THAT(owner_.strangers_closed, SizeIs(1));
  EXPECT_THAT(owner_.closed_with.message(), HasSubstr("longer than allowed"));
  EXPECT_EQ(mesh_->strangers(), 0u);
  EXPECT_TRUE(owner_.introductions.empty());
}

// A joiner speaks first, and the roster that answers it grows with the job.
TEST_F(MeshTest, AStrangerThatWeHaveSpokenToMayAnswerWithMore) {
  link_.OnLeft([this] { mesh_->SendControl(*stranger_, ByteBuffer(10)); });
  const std::string roster = "hello" + std::string(3u << 20, 'r');
  for (std::size_t at = 0; at < roster.size(); at += wire::kMaxPayload) {
    WriteFrame(Control(at, roster.size()), std::string_view(roster).substr(at, wire::kMaxPayload));
  }
  EXPECT_THAT(owner_.introductions, ElementsAre(roster));
  EXPECT_TRUE(mesh_->HasPeer(kPeer));
}

TEST_F(MeshTest, APeerMayNotAnnounceMoreThanTheBound) {
  Introduce();
  WriteFrame(Control(0, (64u << 20) + 1), "x");
  EXPECT_EQ(owner_.peers_closed, 1);
  EXPECT_FALSE(mesh_->HasPeer(kPeer));
}

TEST_F(MeshTest, AControlMessageHasNoGapsAndKeepsItsSize) {
  Introduce();
  WriteFrame(Control(0, 10), "01234");
  WriteFrame(Control(6, 10), "6789");
  EXPECT_EQ(owner_.peers_closed, 1);
  EXPECT_THAT(owner_.closed_with.message(), HasSubstr("gap"));
  EXPECT_TRUE(owner_.controls.empty());
}

TEST_F(MeshTest, AControlMessageKeepsItsSize) {
  Introduce();
  WriteFrame(Control(0, 10), "01234");
  WriteFrame(Control(5, 11), "56789a");
  EXPECT_THAT(owner_.closed_with.message(), HasSubstr("changed its size"));
}

TEST_F(MeshTest, ARefusedIntroductionClosesTheConnection) {
  WriteFrame(Control(0, 7), "goodbye");
  EXPECT_THAT(owner_.strangers_closed, SizeIs(1));
  EXPECT_EQ(owner_.closed_with.message(), "no hello");
}

TEST_F(MeshTest, ARefusedMessageClosesTheConnection) {
  Introduce();
  owner_.refuse_control = DataLoss("nonsense");
  WriteFrame(Control(0, 1), "x");
  EXPECT_EQ(owner_.peers_closed, 1);
  EXPECT_EQ(owner_.closed_with.message(), "nonsense");
}

TEST_F(MeshTest, NoDataBeforeTheIntroduction) {
  WriteFrame(Push(), "data");
  EXPECT_THAT(owner_.strangers_closed, SizeIs(1));
  EXPECT_EQ(sink_.places, 0);
}

TEST_F(MeshTest, NoHeartbeatBeforeTheIntroduction) {
  wire::FrameHeader beat;
  beat.type = wire::FrameType::kHeartbeat;
  WriteFrame(beat, "");
  EXPECT_THAT(owner_.strangers_closed, SizeIs(1));
}

// It knows who we are before we know who it is.
TEST_F(MeshTest, AnIntroducedStrangersHeartbeatIsNoReasonToLeaveIt) {
  owner_.identifies = false;
  Introduce();
  wire::FrameHeader beat;
  beat.type = wire::FrameType::kHeartbeat;
  WriteFrame(beat, "");
  EXPECT_THAT(owner_.strangers_closed, SizeIs(0));
  WriteFrame(Push(), "data");
  EXPECT_THAT(owner_.strangers_closed, SizeIs(1));
}

TEST_F(MeshTest, DataGoesToTheSinkOfItsType) {
  Introduce();
  WriteFrame(Push(), "data");
  ASSERT_EQ(sink_.frames.size(), 1u);
  EXPECT_EQ(AsString(sink_.memory), "data");
  EXPECT_EQ(mesh_->traffic().layer(ModelId(0), LayerId(0), plan::Scheme::kKeyValue).received.payload_bytes, 4u);
}

// Two frames of a factor that has 100 bytes, or 30 compressed.
TEST(Traffic, CountsWhatTravelsAndWhatItStandsFor) {
  wire::FrameHeader frame;
  frame.type = wire::FrameType::kFactor;
  frame.scheme = plan::Scheme::kFactorBroadcast;
  frame.total = 30;
  frame.words = 25;
  Traffic traffic;
  frame.length = 20;
  traffic.CountSent(frame);
  const TrafficCount& counted = traffic.layer(ModelId(0), LayerId(0), plan::Scheme::kFactorBroadcast).sent;
  EXPECT_EQ(counted.whole_bytes, 20u);
  frame.offset = 20;
  frame.length = 10;
  traffic.CountSent(frame);
  EXPECT_EQ(counted.payload_bytes, 30u);
  EXPECT_EQ(counted.whole_bytes, 100u);
}

TEST_F(MeshTest, TypesThatNobodyTakesCloseTheConnection) {
  Introduce();
  wire::FrameHeader factor = Push();
  factor.type = wire::FrameType::kFactor;
  WriteFrame(factor, "data");
  EXPECT_EQ(owner_.peers_closed, 1);
}

TEST_F(MeshTest, FramesOfAnotherGenerationAreDroppedUnread) {
  Introduce();
  wire::FrameHeader old = Push();
  old.generation = Generation(6);
  WriteFrame(old, "data");
  EXPECT_EQ(sink_.places, 0);
  EXPECT_TRUE(sink_.frames.empty());
  EXPECT_EQ(owner_.peers_closed, 0);
  WriteFrame(Push(), "data");
  EXPECT_EQ(sink_.frames.size(), 1u);
}

// Nobody has looked at the layer of a frame that is dropped, and a frame without bytes is never placed.
TEST_F(MeshTest, AFrameOfNoLayerIsNotCounted) {
  Introduce();
  wire::FrameHeader wild = Push();
  wild.layer = LayerId(0xffff'ffffu);
  wild.generation = Generation(6);
  wild.total = 0;
  WriteFrame(wild, "");
  EXPECT_EQ(owner_.peers_closed, 0);
  sink_.refuse = DataLoss("no such layer");
  wild.generation = Generation(7);
  WriteFrame(wild, "");
  EXPECT_EQ(owner_.closed_with.message(), "no such layer");
}

// A stranger's bytes crossed the wire too, and its frames are no longer than those of a peer.
TEST_F(MeshTest, FlowAndCountersAreThoseOfEveryConnection) {
  const std::string half = "hel";
  WriteFrame(Control(0, 5), half);
  link_.OnLeft([this] { EXPECT_EQ(mesh_->strangers(), 1u); });
  link_.OnLeft([&] {
    EXPECT_EQ(mesh_->wire_counters().bytes_read, wire::kHeaderBytes + half.size());
    mesh_->SetFlow({.chunk_bytes = 2000});
    mesh_->SendControl(*stranger_, ByteBuffer(2000));
  });
  ByteBuffer heard(wire::kHeaderBytes);
  link_.OnRight([&] {
    const std::array<MutableBytes, 1> into = {MutableBytes(heard)};
    bare_->Read(into, heard.size(), [](const Status& status, std::size_t) { EXPECT_TRUE(status.ok()); });
  });
  link_.Run();
  const Result<wire::FrameHeader> header = wire::DecodeHeader(std::span<const std::byte, wire::kHeaderBytes>(heard));
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->length, 2000u) << "a chunk";
}

// Of which bytes are lost on the way.
class LosingConnection final : public transport::Connection {
 public:
  explicit LosingConnection(std::unique_ptr<transport::Connection> inner) : inner_(std::move(inner)) {}
  void Read(std::span<const MutableBytes> into, std::size_t min_bytes, transport::ReadCompletion done) override {
    inner_->Read(into, min_bytes, std::move(done));
  }
  void Write(std::span<const ConstBytes> from, Completion done) override { inner_->Write(from, std::move(done)); }
  void Close(Status reason) override { inner_->Close(std::move(reason)); }
  void LimitUndelivered(std::size_t bytes) override { inner_->LimitUndelivered(bytes); }
  bool LosesBytes() override { return true; }
  const std::string& peer_name() const override { return inner_->peer_name(); }
  transport::ConnectionCounters counters() const override { return inner_->counters(); }

 private:
  const std::unique_ptr<transport::Connection> inner_;
};

TEST_F(MeshTest, WhereOneConnectionLosesBytesAllCommitLittle) {
  const MemberId other(9);
  std::unique_ptr<transport::Connection> far;
  link_.Connect();
  link_.OnRight([&] { far = link_.TakeRight(); });
  const auto chunk_to_peer = [&] {
    link_.OnLeft([&] { mesh_->SendControl(kPeer, ByteBuffer(500)); });
    ByteBuffer heard(wire::kHeaderBytes + 500);
    link_.OnRight([&] {
      const std::array<MutableBytes, 1> into = {MutableBytes(heard)};
      bare_->Read(into, heard.size(), [](const Status& status, std::size_t) { EXPECT_TRUE(status.ok()); });
    });
    link_.Run();
    return wire::DecodeHeader(std::span<const std::byte, wire::kHeaderBytes>(heard.data(), wire::kHeaderBytes)).value().length;
  };
  link_.OnLeft([&] {
    ASSERT_TRUE(mesh_->Identify(stranger_, kPeer));
    ASSERT_TRUE(mesh_->Identify(mesh_->AddStranger(std::make_unique<LosingConnection>(link_.TakeLeft())), other));
    mesh_->SetFlow({.chunk_bytes = 1000, .lossy_chunk_bytes = 100});
  });
  EXPECT_EQ(chunk_to_peer(), 500u);
  link_.OnLeft([&] { mesh_->SendControl(other, ByteBuffer(1)); });
  link_.Run();
  EXPECT_EQ(chunk_to_peer(), 100u);
  link_.OnLeft([&] {
    stranger_.reset();
    mesh_.reset();
  });
  link_.OnRight([&] { far.reset(); });
  link_.Run();
}

TEST_F(MeshTest, AMessageToNobodyFailsLater) {
  int fired = 0;
  Status failure;
  link_.OnLeft([&] {
    Outgoing out;
    out.left = [&](Status status) {
      ++fired;
      failure = std::move(status);
    };
    mesh_->Send(MemberId(9), std::move(out));
    EXPECT_EQ(fired, 0);
  });
  link_.Run();
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(failure.code(), StatusCode::kUnavailable);
  EXPECT_EQ(failure.culprit(), 9);
}

TEST_F(MeshTest, DestructionIsSilentButCompletesWhatWasLent) {
  Introduce();
  const ByteBuffer payload(16u << 20);
  int fired = 0;
  link_.OnLeft([&] {
    Outgoing out;
    out.header.type = wire::FrameType::kPush;
    out.header.total = payload.size();
    out.payload = payload;
    out.left = [&](Status status) {
      EXPECT_FALSE(status.ok());
      ++fired;
    };
    mesh_->Send(kPeer, std::move(out));
    stranger_.reset();
    mesh_.reset();
  });
  link_.Run();
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(owner_.peers_closed, 0);
}

// A stranger learns why before its connection closes: a joiner that is turned away, or whose job ends
// before it began.
TEST_F(MeshTest, StrangersToldSomethingHearItBeforeTheEnd) {
  link_.OnLeft([this] {
    mesh_->SendControl(*stranger_, ByteBuffer(100, std::byte{'x'}));
    mesh_->CloseAllWhenDrained(Unavailable("over"));
  });
  ByteBuffer heard(wire::kHeaderBytes + 100);
  Status status = Internal("not read");
  link_.OnRight([&] {
    const std::array<MutableBytes, 1> into = {MutableBytes(heard)};
    bare_->Read(into, heard.size(), [&](Status s, std::size_t) { status = std::move(s); });
  });
  link_.Run();
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(heard.back(), std::byte{'x'});
  EXPECT_THAT(owner_.strangers_closed, SizeIs(1));
}

// Not by address: then the same job would end another way in every run.
TEST_F(MeshTest, StrangersAreClosedInTheOrderInWhichTheyCame) {
  std::vector<std::unique_ptr<transport::Connection>> ends;
  std::vector<const Channel*> came = {stranger_.get()};
  const auto arrive = [&] {
    link_.Connect();
    link_.OnLeft([&] { came.push_back(mesh_->AddStranger(link_.TakeLeft()).get()); });
    link_.OnRight([&] { ends.push_back(link_.TakeRight()); });
  };
  for (int i = 0; i < 8; ++i) arrive();
  // Two leave, and those that come next may get their memory.
  for (const int gone : {5, 2}) {
    link_.OnRight([&] { ends.erase(ends.begin() + gone); });
    link_.Run();
    EXPECT_EQ(owner_.strangers_closed.back(), came[gone + 1]);
    came.erase(came.begin() + gone + 1);
  }
  owner_.strangers_closed.clear();
  for (int i = 0; i < 8; ++i) arrive();
  link_.OnLeft([&] { mesh_->CloseAll(Unavailable("over")); });
  link_.Run();
  EXPECT_THAT(owner_.strangers_closed, ElementsAreArray(came));
  link_.OnRight([&] { ends.clear(); });
}

#ifdef POSEIDON_THREAD_CHECKS
using MeshDeathTest = MeshTest;

TEST_F(MeshDeathTest, EveryEntryWantsATaskOfItsExecutor) {
  const auto outside = [](const char* entry) {
    return std::string(entry) + ".* outside a task of its executor \\(executor_\\)";
  };
  EXPECT_DEATH(mesh_->Route(wire::FrameType::kPush, sink_), outside("Mesh::Route"));
  EXPECT_DEATH(mesh_->SetFlow({}), outside("Mesh::SetFlow"));
  EXPECT_DEATH(mesh_->Send(kPeer, {}), outside("Mesh::Send"));
  EXPECT_DEATH(mesh_->SendControl(kPeer, {}), outside("Mesh::SendControl"));
  EXPECT_DEATH(mesh_->CloseAll(OkStatus()), outside("Mesh::CloseAll"));
  EXPECT_DEATH(stranger_->Send({}), outside("Channel::Send"));
  EXPECT_DEATH(stranger_->Close(OkStatus()), outside("Channel::Close"));
  link_.OnRight([this] { EXPECT_DEATH(mesh_->Send(kPeer, {}), "Mesh::Send"); });
}
#endif

}  // namespace
}  // namespace poseidon::messaging
