// SPDX-License-Identifier: Apache-2.0
// Records between two codecs, with somebody in between.
#include "poseidon/transport/tcp/records.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "poseidon/transport/tcp/authenticated_codec.h"
#include "poseidon/transport/tcp/descriptor.h"
#include "poseidon/transport/tcp/sealed_codec.h"
#include "poseidon/transport/tcp/socket.h"
#include "poseidon/transport/tcp/test_bytes.h"

namespace poseidon::transport::tcp {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::size_t kAround = kRecordHeaderBytes + kTagBytes;

Key Secret(std::string_view name) { return Key::Derive(AsBytes("the secret of a test"), name); }

enum class Kind { kAes, kChaCha, kAuthenticated };

// One end of a connection, whose socket's other end the test holds: it takes what the codec sends and hands it what it
// likes.
class End {
 public:
  // Two ends are of one connection where one's `to_peer` is the other's `from_peer`.
  End(Kind kind, std::string_view to_peer, std::string_view from_peer, std::uint64_t rekey_after_bytes = kNever) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    codec_fd_ = UniqueFd(fds[0]);
    test_fd_ = UniqueFd(fds[1]);
    const RecordSecrets secrets{.to_peer = Secret(to_peer), .from_peer = Secret(from_peer)};
    if (kind == Kind::kAuthenticated) {
      codec_ = std::make_unique<AuthenticatedCodec>(fds[0], secrets, rekey_after_bytes, WireBytes{});
    } else {
      codec_ = std::make_unique<SealedCodec>(
          fds[0], kind == Kind::kAes ? CipherKind::kAes128Gcm : CipherKind::kChaCha20Poly1305, secrets, rekey_after_bytes,
          ConstBytes{}, WireBytes{});
    }
  }

  // What leaves when the buffers are written.
  ByteBuffer Write(std::span<const ConstBytes> buffers) {
    WriteCursor from(buffers);
    ByteBuffer left;
    while (!from.done() || codec_->unsent()) {
      const Codec::Moved moved = codec_->Write(from, std::size_t{260} << 10);
      EXPECT_NE(moved.next, Codec::Next::kFailed);
      Drain(left);
    }
    Drain(left);
    return left;
  }
  ByteBuffer Write(ConstBytes bytes) { return Write(std::span(&bytes, 1)); }

  void Arrives(ConstBytes bytes) {
    while (!bytes.empty()) {
      const SocketCall call = Send(test_fd_.get(), bytes);
      if (call.would_block()) Pump();
      bytes = bytes.subspan(call.bytes);
    }
    Pump();
  }
  void Ends() {
    ::shutdown(test_fd_.get(), SHUT_WR);
    Pump();
  }

  // One read of what has arrived.
  Codec::Moved Read(MutableBytes into, std::size_t enough) {
    ReadCursor cursor(std::span<const MutableBytes>(&into, 1));
    return codec_->Read(cursor, {.enough = enough, .limit = kNever});
  }

  ByteBuffer landed;
  Codec::Moved last;  // `bytes` since Expect

  // From now on what arrives is read at once, as far as `bytes`.
  void Expect(std::size_t bytes) {
    landed.assign(bytes, std::byte{0});
    into_ = MutableBytes(landed);
    cursor_ = ReadCursor(std::span<const MutableBytes>(&into_, 1));
    last = {};
  }

 private:
  void Drain(ByteBuffer& into) {
    ByteBuffer piece(std::size_t{1} << 20);
    for (;;) {
      const SocketCall call = Receive(test_fd_.get(), piece);
      if (call.error != 0 || call.bytes == 0) return;
      into.insert(into.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(call.bytes));
    }
  }
  void Pump() {
    if (cursor_.done() || last.next == Codec::Next::kFailed) return;
    const std::size_t bytes = last.bytes;
    last = codec_->Read(cursor_, {.enough = cursor_.left(), .limit = kNever});
    last.bytes += bytes;
  }

  UniqueFd codec_fd_;
  UniqueFd test_fd_;
  std::unique_ptr<Codec> codec_;
  MutableBytes into_;
  ReadCursor cursor_;
};

class RecordsTest : public testing::TestWithParam<Kind> {
 protected:
  // How many of `bytes` count where `wire` arrives, and why it stopped.
  static Codec::Moved Read(ConstBytes wire, std::size_t bytes) {
    End reader(GetParam(), "down", "up");
    reader.Expect(bytes);
    reader.Arrives(wire);
    return reader.last;
  }
  static void ExpectRefused(ConstBytes wire, std::size_t bytes, std::size_t good) {
    const Codec::Moved moved = Read(wire, bytes);
    EXPECT_EQ(moved.next, Codec::Next::kFailed);
    EXPECT_EQ(moved.error, EBADMSG);
    EXPECT_EQ(moved.bytes, good);
  }
  End writer_{GetParam(), "up", "down"};
};

INSTANTIATE_TEST_SUITE_P(Kinds, RecordsTest, testing::Values(Kind::kAes, Kind::kChaCha, Kind::kAuthenticated),
                         [](const auto& kind) {
                           return kind.param == Kind::kAes      ? "Aes"
                                  : kind.param == Kind::kChaCha ? "ChaCha"
                                                                : "Authenticated";
                         });

TEST_P(RecordsTest, BytesArriveHoweverTheyAreCut) {
  std::mt19937 random(1);
  End reader(GetParam(), "down", "up");
  for (int turn = 0; turn < 60; ++turn) {
    const ByteBuffer sent = RandomBytes(1 + random() % (turn % 4 == 0 ? 700'000 : 5'000), static_cast<unsigned>(turn));
    std::vector<ConstBytes> buffers;
    for (ConstBytes left = sent; !left.empty();) {
      buffers.push_back(left.first(std::min<std::size_t>(left.size(), random() % (random() % 4 == 0 ? 300'000 : 100))));
      left = left.subspan(buffers.back().size());
    }
    const ByteBuffer wire = writer_.Write(buffers);
    reader.Expect(sent.size());
    for (ConstBytes left = wire; !left.empty();) {
      const ConstBytes piece = left.first(std::min<std::size_t>(left.size(), 1 + random() % 200'000));
      reader.Arrives(piece);
      left = left.subspan(piece.size());
    }
    ASSERT_EQ(reader.last.bytes, sent.size());
    ASSERT_EQ(reader.landed, sent);
  }
}

// A header of 64 bytes, a large body, and so on: each body lands where the reader said after the header before it.
TEST_P(RecordsTest, ALargeBufferBeginsARecord) {
  const ByteBuffer header(64), body(40'000);
  const std::vector<ConstBytes> buffers = {header, body, header, header, body};
  const ByteBuffer wire = writer_.Write(buffers);
  EXPECT_EQ(wire.size(), 3 * header.size() + 2 * body.size() + 3 * kAround);
  EXPECT_EQ(NextRecordBytes(buffers, kNever), 64u);
  EXPECT_EQ(NextRecordBytes(std::span(buffers).subspan(1), kNever), 40'128u);
  EXPECT_EQ(NextRecordBytes(std::span(buffers).subspan(1), 100), 100u);
  const ByteBuffer huge(1 << 20);
  EXPECT_EQ(NextRecordBytes(std::vector<ConstBytes>{huge}, kNever), kRecordBytes);
}

// A reader of small frames has room behind what it needs. A large payload is not opened into it, but where it belongs.
TEST_P(RecordsTest, ALargeRecordWaitsForTheReadThatNamesItsPlace) {
  const ByteBuffer header = RandomBytes(64, 1), body = RandomBytes(40'000, 2);
  End reader(GetParam(), "down", "up");
  reader.Arrives(writer_.Write(std::vector<ConstBytes>{header, body}));
  ByteBuffer ahead(16'384), place(body.size());
  EXPECT_EQ(reader.Read(ahead, header.size()).bytes, header.size());
  EXPECT_EQ(reader.Read(place, body.size()).bytes, body.size());
  EXPECT_EQ(place, body);
}

// A read that has emptied the system's buffer says so, and the next one need not ask in vain.
TEST_P(RecordsTest, AReadSaysWhereNothingMoreIsThere) {
  const ByteBuffer frame = RandomBytes(1'000, 1);
  End reader(GetParam(), "down", "up");
  reader.Arrives(writer_.Write(frame));
  ByteBuffer ahead(16'384);
  const Codec::Moved moved = reader.Read(ahead, 64);
  EXPECT_EQ(moved.bytes, frame.size());
  EXPECT_EQ(moved.next, Codec::Next::kReadable);
  const ByteBuffer two = writer_.Write(std::vector<ConstBytes>{frame, RandomBytes(40'000, 2)});
  reader.Arrives(two);
  EXPECT_EQ(reader.Read(MutableBytes(ahead).first(500), 500).next, Codec::Next::kGoOn) << "the rest is here";
}

TEST_P(RecordsTest, NothingReadableIsOnTheWireOfSealedRecords) {
  const ByteBuffer sent = RandomBytes(5000, 1);
  const ByteBuffer wire = writer_.Write(sent);
  const bool found = std::search(wire.begin(), wire.end(), sent.begin(), sent.begin() + 8) != wire.end();
  EXPECT_EQ(found, GetParam() == Kind::kAuthenticated);
}

TEST_P(RecordsTest, AChangedBitIsFound) {
  const ByteBuffer sent = RandomBytes(300, 1);
  const ByteBuffer wire = writer_.Write(sent);
  for (std::size_t bit = 0; bit < 8 * wire.size(); ++bit) {
    ByteBuffer changed = wire;
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    const Codec::Moved moved = Read(changed, sent.size());
    EXPECT_EQ(moved.bytes, 0u) << bit;
    // A length that grew may still wait for the rest of its record; whatever comes, it does not check.
    EXPECT_TRUE(moved.error == EBADMSG || bit < 8 * kRecordHeaderBytes) << bit;
  }
}

TEST_P(RecordsTest, ARepeatedRecordIsRefused) {
  const ByteBuffer first = writer_.Write(RandomBytes(100, 1));
  ByteBuffer twice = first;
  twice.insert(twice.end(), first.begin(), first.end());
  ExpectRefused(twice, 200, 100);
}

TEST_P(RecordsTest, RecordsOutOfTurnAreRefused) {
  const ByteBuffer first = writer_.Write(RandomBytes(100, 1));
  ByteBuffer swapped = writer_.Write(RandomBytes(100, 2));
  ExpectRefused(swapped, 100, 0);  // the first is left out
  swapped.insert(swapped.end(), first.begin(), first.end());
  ExpectRefused(swapped, 200, 0);
}

TEST_P(RecordsTest, ARecordSentBackIsRefused) {
  const ByteBuffer wire = writer_.Write(RandomBytes(100, 1));
  writer_.Expect(100);
  writer_.Arrives(wire);
  EXPECT_EQ(writer_.last.error, EBADMSG);
}

TEST_P(RecordsTest, ARecordOfAnotherConnectionIsRefused) {
  End other(GetParam(), "another up", "another down");
  ExpectRefused(other.Write(RandomBytes(100, 1)), 100, 0);
}

TEST_P(RecordsTest, ACutStreamEndsAfterItsLastWholeRecord) {
  const ByteBuffer first = writer_.Write(RandomBytes(100, 1));
  ByteBuffer wire = first;
  const ByteBuffer second = writer_.Write(RandomBytes(100, 2));
  wire.insert(wire.end(), second.begin(), second.end());
  for (std::size_t cut = 1; cut <= second.size(); ++cut) {
    End reader(GetParam(), "down", "up");
    reader.Expect(200);
    reader.Arrives(ConstBytes(wire).first(wire.size() - cut));
    EXPECT_EQ(reader.last.bytes, 100u);
    EXPECT_EQ(reader.last.next, Codec::Next::kReadable);
    reader.Ends();
    EXPECT_EQ(reader.last.bytes, 100u);
    EXPECT_EQ(reader.last.next, Codec::Next::kEnded) << cut;
  }
}

TEST_P(RecordsTest, ALengthThatNobodySendsIsRefusedAtOnce) {
  for (const std::uint32_t length : {0u, static_cast<unsigned>(kMaxRecordBytes) + 1, 0x7fffffffu, 0x80000000u}) {
    ByteBuffer header(kRecordHeaderBytes);
    for (std::size_t i = 0; i < header.size(); ++i) header[i] = static_cast<std::byte>(length >> (8 * i));
    ExpectRefused(header, 100, 0);
  }
}

TEST_P(RecordsTest, KeysChangeOnTheWay) {
  End writer(GetParam(), "up", "down", 1000);
  End reader(GetParam(), "down", "up", kNever);  // the sender decides
  const auto changes = [](ConstBytes wire) { return (wire[3] & std::byte{0x80}) != std::byte{0}; };
  int changed = 0;
  for (unsigned i = 0; i < 10; ++i) {
    const ByteBuffer sent = RandomBytes(400, i);
    const ByteBuffer wire = writer.Write(sent);
    changed += changes(wire) ? 1 : 0;
    EXPECT_EQ(changes(wire), i > 0 && i % 3 == 0) << "a key serves until 1000 bytes have been sent under it";
    reader.Expect(sent.size());
    reader.Arrives(wire);
    EXPECT_EQ(reader.landed, sent);
  }
  EXPECT_EQ(changed, 3);
}

TEST(RecordKeysTest, TheNextKeyIsAnother) {
  RecordKeys first(CipherKind::kAes128Gcm, CipherUse::kSeal, Secret("up"), 10);
  RecordKeys second(CipherKind::kAes128Gcm, CipherUse::kSeal, Secret("up"), kNever);
  const auto tag = [](RecordKeys& keys) {
    keys.BeginNext(20);
    ByteBuffer body(20);
    keys.cipher().Piece(body, body.data());
    return keys.cipher().Finish();
  };
  EXPECT_EQ(tag(first), tag(second));
  EXPECT_NE(tag(first), tag(second));
}

}  // namespace
}  // namespace poseidon::transport::tcp
