// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/transport_conformance.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <string>

#include "poseidon/base/random.h"

namespace poseidon::conformance {

using std::chrono::milliseconds;
using std::chrono::seconds;
using transport::Address;
using transport::Connection;
using transport::ConnectionCounters;
using transport::Listener;

void TransportConformance::MakeWorld(std::size_t participants) {
  world_ = GetParam().make(participants);
  connections_.resize(participants);
  listeners_.resize(participants);
}

void TransportConformance::TearDown() {
  if (world_ == nullptr) return;
  for (std::size_t i = 0; i < world_->participants(); ++i) {
    world_->executor(i).Post([connections = std::move(connections_[i]),
                              listeners = std::move(listeners_[i])]() mutable {
      connections.clear();
      listeners.clear();
    });
  }
  connections_.clear();
  listeners_.clear();
  world_->ShutDown();
  world_.reset();
}

TransportConformance::Ends TransportConformance::Join(std::size_t from, std::size_t to) {
  struct State {
    Tally joined;
    Address address;
    Ends ends;
    Listener* listener = nullptr;
  };
  const auto state = std::make_shared<State>();
  const bool listens = On(to, [this, state, to] {
    auto listener = world_->context(to).Listen(
        world_->listen_address(to), [this, state, to](std::unique_ptr<Connection> connection) {
          state->ends.accepting = connection.get();
          connections_[to].push_back(std::move(connection));
          state->joined.Add();
        });
    ASSERT_TRUE(listener.ok()) << listener.status().ToString();
    state->address = (*listener)->address();
    state->listener = listener->get();
    listeners_[to].push_back(*std::move(listener));
  });
  if (!listens || state->listener == nullptr) return {};
  On(from, [this, state, from] {
    world_->context(from).Connect(
        state->address, seconds(30),
        [this, state, from](Result<std::unique_ptr<Connection>> connection) {
          ASSERT_TRUE(connection.ok()) << connection.status().ToString();
          state->ends.connecting = connection->get();
          connections_[from].push_back(*std::move(connection));
          state->joined.Add();
        });
  });
  if (!Await(state->joined, 2)) return {};
  On(to, [this, state, to] {
    std::erase_if(listeners_[to], [&](const auto& l) { return l.get() == state->listener; });
  });
  return state->ends;
}

void TransportConformance::Drop(std::size_t i, Connection* connection) {
  std::erase_if(connections_[i], [&](const auto& owned) { return owned.get() == connection; });
}

bool TransportConformance::Settle() {
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < world_->participants(); ++i) {
      if (!On(i, [] {})) return false;
    }
  }
  return true;
}

namespace {

// The byte at `offset` of the stream that `seed` names.
std::byte PatternByte(std::uint64_t seed, std::uint64_t offset) {
  return static_cast<std::byte>(Mix64(seed ^ (offset / 8)) >> (8 * (offset % 8)));
}
ByteBuffer Pattern(std::uint64_t seed, std::uint64_t offset, std::size_t size) {
  ByteBuffer bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = PatternByte(seed, offset + i);
  return bytes;
}

transport::ReadCompletion ReadInto(const SharedOutcome& outcome) {
  return [outcome](Status status, std::size_t bytes) {
    outcome->status = std::move(status);
    outcome->bytes = bytes;
    outcome->fired.Add();
  };
}
Completion WriteInto(const SharedOutcome& outcome) {
  return [outcome](Status status) {
    outcome->status = std::move(status);
    outcome->fired.Add();
  };
}
SharedOutcome MakeOutcome() { return std::make_shared<Outcome>(); }

struct TransferOptions {
  std::uint64_t seed = 1;          // names the bytes, and the sizes of the pieces
  std::size_t total = 0;           // bytes to move
  std::size_t largest_piece = 1;   // of one operation, in bytes
  std::size_t most_buffers = 1;    // of one operation
};

// Splits `size` into up to `most` parts, some of which may be empty.
std::vector<std::size_t> RandomParts(Random& random, std::size_t size, std::size_t most) {
  std::vector<std::size_t> cuts = {0, size};
  for (std::size_t n = random.Below(most); n > 0; --n) cuts.push_back(random.Between(0, size));
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::size_t> parts;
  for (std::size_t i = 1; i < cuts.size(); ++i) parts.push_back(cuts[i] - cuts[i - 1]);
  return parts;
}

// Writes a stream's bytes piece by piece; `outcome` fires when all are taken, or at a failure.
class Sender : public std::enable_shared_from_this<Sender> {
 public:
  Sender(Connection& connection, TransferOptions options, SharedOutcome outcome)
      : connection_(connection), options_(options), outcome_(std::move(outcome)) {}

  void Next() {
    if (outcome_->bytes == options_.total) {
      outcome_->fired.Add();
      return;
    }
    const std::size_t size = std::min<std::size_t>(random_.Between(1, options_.largest_piece),
                                                   options_.total - outcome_->bytes);
    piece_ = Pattern(options_.seed, outcome_->bytes, size);
    std::vector<ConstBytes> buffers;  // dies with this call: the array is not lent
    std::size_t begin = 0;
    for (std::size_t part : RandomParts(random_, size, options_.most_buffers)) {
      buffers.push_back(ConstBytes(piece_).subspan(begin, part));
      begin += part;
    }
    connection_.Write(buffers, [self = shared_from_this(), size](Status status) {
      // Taken over means that the memory is the writer's again.
      std::fill(self->piece_.begin(), self->piece_.end(), std::byte{0xdd});
      if (!status.ok()) {
        self->outcome_->status = std::move(status);
        self->outcome_->fired.Add();
        return;
      }
      self->outcome_->bytes += size;
      self->Next();
    });
  }

 private:
  Connection& connection_;
  const TransferOptions options_;
  const SharedOutcome outcome_;
  Random random_{options_.seed};
  ByteBuffer piece_;
};

// Reads a stream's bytes and compares each; `outcome` fires when all have come, or at a failure.
class Receiver : public std::enable_shared_from_this<Receiver> {
 public:
  Receiver(Connection& connection, TransferOptions options, SharedOutcome outcome)
      : connection_(connection), options_(options), outcome_(std::move(outcome)) {}

  void Next() {
    if (outcome_->bytes == options_.total) {
      outcome_->fired.Add();
      return;
    }
    const std::size_t size = std::min<std::size_t>(random_.Between(1, options_.largest_piece),
                                                   options_.total - outcome_->bytes);
    const std::size_t min_bytes = random_.Between(1, size);
    piece_.assign(size, std::byte{0xee});
    std::vector<MutableBytes> buffers;
    std::size_t begin = 0;
    for (std::size_t part : RandomParts(random_, size, options_.most_buffers)) {
      buffers.push_back(MutableBytes(piece_).subspan(begin, part));
      begin += part;
    }
    connection_.Read(buffers, min_bytes,
                     [self = shared_from_this(), min_bytes](Status status, std::size_t bytes) {
                       self->Landed(std::move(status), bytes, min_bytes);
                     });
  }

 private:
  void Landed(Status status, std::size_t bytes, std::size_t min_bytes) {
    if (status.ok() && (bytes < min_bytes || bytes > piece_.size())) {
      status = Internal("a read of " + std::to_string(min_bytes) + " to " +
                        std::to_string(piece_.size()) + " bytes gave " + std::to_string(bytes));
    }
    for (std::size_t i = 0; status.ok() && i < bytes; ++i) {
      if (piece_[i] != PatternByte(options_.seed, outcome_->bytes + i)) {
        status = DataLoss("byte " + std::to_string(outcome_->bytes + i) + " is wrong");
      }
    }
    if (!status.ok()) {
      outcome_->status = std::move(status);
      outcome_->fired.Add();
      return;
    }
    outcome_->bytes += bytes;
    Next();
  }

  Connection& connection_;
  const TransferOptions options_;
  const SharedOutcome outcome_;
  Random random_{options_.seed + 1};
  ByteBuffer piece_;
};

SharedOutcome StartSending(TransportWorld& world, std::size_t i, Connection* connection,
                           TransferOptions options) {
  SharedOutcome outcome = MakeOutcome();
  world.executor(i).Post([connection, options, outcome] {
    std::make_shared<Sender>(*connection, options, outcome)->Next();
  });
  return outcome;
}
SharedOutcome StartReceiving(TransportWorld& world, std::size_t i, Connection* connection,
                             TransferOptions options) {
  SharedOutcome outcome = MakeOutcome();
  world.executor(i).Post([connection, options, outcome] {
    std::make_shared<Receiver>(*connection, options, outcome)->Next();
  });
  return outcome;
}

TEST_P(TransportConformance, BytesArriveInOrderBothWaysAtOnce) {
  MakeWorld(2);
  const Ends ends = Join(0, 1);
  ASSERT_NE(ends.accepting, nullptr);
  EXPECT_FALSE(ends.connecting->peer_name().empty());
  EXPECT_FALSE(ends.accepting->peer_name().empty());
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto draw = [&](std::uint64_t tag) {
      const std::size_t limit = std::min<std::size_t>(GetParam().many_bytes / 16, 400'000);
      return TransferOptions{.seed = seed * 2 + tag,
                             .total = random.Between(1, limit),
                             .largest_piece = random.Between(1, 1 + limit / 4) / 50 + 64,
                             .most_buffers = random.Between(1, 20)};
    };
    const TransferOptions there = draw(0);
    TransferOptions back = draw(1);
    const auto sent = StartSending(*world_, 0, ends.connecting, there);
    const auto returned = StartSending(*world_, 1, ends.accepting, back);
    const auto arrived = StartReceiving(*world_, 1, ends.accepting, there);
    const auto came_back = StartReceiving(*world_, 0, ends.connecting, back);
    for (const auto& outcome : {sent, returned, arrived, came_back}) {
      ASSERT_TRUE(Await(outcome));
      ASSERT_TRUE(outcome->status.ok()) << outcome->status.ToString();
    }
  }
}

TEST_P(TransportConformance, ScatterReadsFillTheirBuffersInOrder) {
  MakeWorld(2);
  const Ends ends = Join(0, 1);
  ASSERT_NE(ends.accepting, nullptr);
  const std::string text = "0123456789abcdefghij";
  const auto written = MakeOutcome();
  const auto read = MakeOutcome();
  std::string first(3, '-');
  std::string second(10, '-');
  std::string third(7, '-');
  const auto bytes_of = [](std::string& s) {
    return MutableBytes(reinterpret_cast<std::byte*>(s.data()), s.size());
  };
  On(1, [&] {
    const std::array<MutableBytes, 4> into = {bytes_of(first), MutableBytes(), bytes_of(second),
                                              bytes_of(third)};
    ends.accepting->Read(into, 20, ReadInto(read));
  });
  On(0, [&] {
    const ConstBytes all = AsBytes(text);
    const std::array<ConstBytes, 4> from = {all.first(1), all.subspan(1, 0), all.subspan(1, 11),
                                            all.subspan(12)};
    ends.connecting->Write(from, WriteInto(written));
  });
  ASSERT_TRUE(Await(written));
  ASSERT_TRUE(Await(read));
  EXPECT_TRUE(read->status.ok());
  EXPECT_EQ(read->bytes, 20u);
  EXPECT_EQ(first + "|" + second + "|" + third, "012|3456789abc|defghij");
}

TEST_P(TransportConformance, AReadEndsWithWhatIsThereOnceItIsEnough) {
  MakeWorld(2);
  const Ends ends = Join(0, 1);
  ASSERT_NE(ends.accepting, nullptr);
  const ByteBuffer sent = Pattern(1, 0, 10);
  const auto written = MakeOutcome();
  On(0, [&] { ends.connecting->Write(std::array{ConstBytes(sent)}, WriteInto(written)); });
  ASSERT_TRUE(Await(written));
  ByteBuffer got(100);
  const auto read = MakeOutcome();
  On(1, [&] { ends.accepting->Read(std::array{MutableBytes(got)}, 4, ReadInto(read)); });
  ASSERT_TRUE(Await(read));
  EXPECT_TRUE(read->status.ok());
  ASSERT_GE(read->bytes, 4u);
  ASSERT_LE(read->bytes, 10u);
  const auto rest = MakeOutcome();
  if (read->bytes < 10) {
    On(1, [&] {
      ends.accepting->Read(std::array{MutableBytes(got).subspan(read->bytes)}, 10 - read->bytes,
                           ReadInto(rest));
    });
    ASSERT_TRUE(Await(rest));
    EXPECT_EQ(rest->bytes, 10 - read->bytes);
  }
  got.resize(10);
  EXPECT_EQ(got, sent);
}

TEST_P(TransportConformance, OneByteAtATime) {
  MakeWorld(2);
  const Ends ends = Join(0, 1);
  ASSERT_NE(ends.accepting, nullptr);
  const TransferOptions options{.seed = 3, .total = 2000, .largest_piece = 1};
  const auto sent = StartSending(*world_, 0, ends.connecting, options);
  const auto arrived = StartReceiving(*world_, 1, ends.accepting, options);
  ASSERT_TRUE(Await(sent));
  ASSERT_TRUE(Await(arrived));
  EXPECT_TRUE(sent->status.ok()) << sent->status.ToString();
  EXPECT_TRUE(arrived->status.ok()) << arrived->status.ToString();
}

TEST_P(TransportConformance, AnEmptyWriteCompletes) {
  MakeWorld(2);
  const Ends ends = Join(0, 1);
  ASSERT_NE(ends.accepting, nullptr);
  const auto none = MakeOutcome();
  const auto empty = MakeOutcome();
  On(0, [&] { ends.connecting->Write({}, WriteInto(none)); });
  ASSERT_TRUE(Await(none));
  On(0, [&] { ends.connecting->Write(std::array{ConstBytes()}, WriteInto(empty)); });
  ASSERT_TRUE(Await(empty));
  EXPECT_TRUE(none->status.ok());
  EXPECT_TRUE(empty->status.ok());
}

// The writer waits for its reader: while more is unread than any buffer holds, the write is pending.
TEST_P(TransportConformance, AWriterWaitsForItsReader) {
  MakeWorld(2);
  const Ends ends = Join(0, 1);
  ASSERT_NE(ends.accepting, nullptr);
  const std::size_t total = GetParam().many_bytes;
  const ByteBuffer bytes = Pattern(5, 0, total);
  const auto written = MakeOutcome();
  On(0, [&] { ends.connecting->Write(std::array{ConstBytes(bytes)}, WriteInto(written)); });
  TransferOptions quarter{.seed = 5, .total = total / 4, .largest_piece = 256 * 1024,
                          .most_buffers = 3};
  const auto early = StartReceiving(*world_, 1, ends.accepting, quarter);
  ASSERT_TRUE(Await(early));
  ASSERT_TRUE(early->status.ok()) << early->status.ToString();
  ASSERT_TRUE(Settle());
  EXPECT_EQ(written->fired.value(), 0u) << "three quarters are unread";
  ByteBuffer rest(total - quarter.total);
  const auto read = MakeOutcome();
  On(1, [&] {
    ends.accepting->Read(std::array{MutableBytes(rest)}, rest.size(), ReadInto(read));
  });
  ASSERT_TRUE(Await(read));
  ASSERT_TRUE(Await(written));
  EXPECT_TRUE(written->status.ok());
  EXPECT_EQ(read->bytes, rest.size());
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), bytes.begin() + static_cast<std::ptrdiff_t>(
                                                                       quarter.total)));
}

TEST_P(TransportConformance, CompletionsNeverRunInsideTheCallThatTookThem) {
  MakeWorld(2);
  const Ends ends = Join(0, 1);
  ASSERT_NE(ends.accepting, nullptr);
  struct State {
    bool inside = false;
    bool nested = false;
    int left = 200;
    std::byte byte{};
    Tally done;
  };
  const auto writer = std::make_shared<State>();
  const auto reader = std::make_shared<State>();
  // Data is usually there before it is asked for, and there is usually room: the tempting moments.
  std::function<void()> write = [&write, writer, connection = ends.connecting] {
    writer->inside = true;
    connection->Write(std::array{ConstBytes(&writer->byte, 1)}, [&write, writer](Status status) {
      writer->nested = writer->nested || writer->inside || !status.ok();
      writer->left > 0 ? write() : writer->done.Add();
    });
    writer->inside = false;
    --writer->left;
  };
  std::function<void()> read = [&read, reader, connection = ends.accepting] {
    reader->inside = true;
    connection->Read(std::array{MutableBytes(&reader->byte, 1)}, 1,
                     [&read, reader](Status status, std::size_t) {
                       reader->nested = reader->nested || reader->inside || !status.ok();
                       reader->left > 0 ? read() : reader->done.Add();
                     });
    reader->inside = false;
    --reader->left;
  };
  On(0, [&] { write(); });
  ASSERT_TRUE(Await(writer->done));
  On(1, [&] { read(); });
  ASSERT_TRUE(Await(reader->done));
  EXPECT_FALSE(writer->nested);
  EXPECT_FALSE(reader->nested);
  // Neither do those of Close, of a closed connection, nor those of a destruction.
  const auto closed = std::make_shared<State>();
  On(0, [&] {
    const auto note = [closed] {
      closed->nested = closed->nested || closed->inside;
      closed->done.Add();
    };
    closed->inside = true;
    ends.connecting->Read(std::array{MutableBytes(&closed->byte, 1)}, 1,
                          [note](Status, std::size_t) { note(); });
    ends.connecting->Close(OkStatus());
    ends.connecting->Write(std::array{ConstBytes(&closed->byte, 1)}, [note](Status) { note(); });
    Drop(0, ends.connecting);
    closed->inside = false;
  });
  ASSERT_TRUE(Await(closed->done, 2));
  EXPECT_FALSE(closed->nested);
}

// Every way in which a connection can end while operations are pending.
enum class Ending { kClose, kCloseWithReason, kDestroy, kPeerCloses, kPeerIsDestroyed, kPeerDies };

class PendingOperations {
 public:
  PendingOperations(TransportWorld& world, std::size_t i, Connection* connection,
                    std::size_t bytes_to_write)
      : into(16), from(bytes_to_write) {
    world.On(i, [this, connection] {
      connection->Read(std::array{MutableBytes(into)}, into.size(), ReadInto(read));
      connection->Write(std::array{ConstBytes(from)}, WriteInto(write));
    });
  }
  ByteBuffer into;
  ByteBuffer from;
  SharedOutcome read = MakeOutcome();
  SharedOutcome write = MakeOutcome();
};

TEST_P(TransportConformance, PendingOperationsFireExactlyOnceHoweverTheConnectionEnds) {
  for (Ending ending : {Ending::kClose, Ending::kCloseWithReason, Ending::kDestroy,
                        Ending::kPeerCloses, Ending::kPeerIsDestroyed, Ending::kPeerDies}) {
    SCOPED_TRACE(static_cast<int>(ending));
    MakeWorld(2);
    const Ends ends = Join(0, 1);
    ASSERT_NE(ends.accepting, nullptr);
    Connection* const own = ends.connecting;
    Connection* const peer = ends.accepting;
    PendingOperations pending(*world_, 0, own, GetParam().many_bytes);
    switch (ending) {
      case Ending::kClose:
        On(0, [&] { own->Close(OkStatus()); });
        break;
      case Ending::kCloseWithReason:
        On(0, [&] { own->Close(Status(StatusCode::kAborted, "enough", StatusScope::kJob, 3)); });
        break;
      case Ending::kDestroy:
        On(0, [&] { Drop(0, own); });
        break;
      case Ending::kPeerCloses:
        On(1, [&] { peer->Close(OkStatus()); });
        break;
      case Ending::kPeerIsDestroyed:
        On(1, [&] { Drop(1, peer); });
        break;
      case Ending::kPeerDies:
        if (!world_->Kill(1)) {
          On(1, [&] { Drop(1, peer); });
        }
        break;
    }
    ASSERT_TRUE(Await(pending.read));
    ASSERT_TRUE(Await(pending.write));
    const StatusCode expected =
        ending == Ending::kCloseWithReason ? StatusCode::kAborted : StatusCode::kUnavailable;
    EXPECT_EQ(pending.read->status.code(), expected) << pending.read->status.ToString();
    EXPECT_EQ(pending.write->status.code(), expected) << pending.write->status.ToString();
    if (ending == Ending::kCloseWithReason) {
      EXPECT_EQ(pending.read->status.message(), "enough");
      EXPECT_EQ(pending.read->status.culprit(), 3);
    }
    if (ending != Ending::kDestroy) {
      On(0, [&] { Drop(0, own); });
    }
    if (ending != Ending::kPeerDies) {
      ASSERT_TRUE(Settle());
    }
    EXPECT_EQ(pending.read->fired.value(), 1u);
    EXPECT_EQ(pending.write->fired.value(), 1u);
    TearDown();
  }
}

TEST_P(TransportConformance, TheEndComesAfterTheLastByte) {
  MakeWorld(2);
  const Ends ends = Join(0, 1);
  ASSERT_NE(ends.accepting, nullptr);
  const ByteBuffer bytes = Pattern(9, 0, 1000);
  const auto written = MakeOutcome();
  On(0, [&] {
    ends.connecting->Write(std::array{ConstBytes(bytes)},
                           [written, connection = ends.connecting](Status status) {
                             connection->Close(OkStatus());
                             written->status = std::move(status);
                             written->fired.Add();
                           });
  });
  ASSERT_TRUE(Await(written));
  EXPECT_TRUE(written->status.ok());
  const auto arrived =
      StartReceiving(*world_, 1, ends.accepting, {.seed = 9, .total = 1000, .largest_piece = 150});
  ASSERT_TRUE(Await(arrived));
  EXPECT_TRUE(arrived->status.ok()) << arrived->status.ToString();
  for (int i = 0; i < 2; ++i) {
    std::byte beyond{};
    const auto read = MakeOutcome();
    On(1, [&] { ends.accepting->Read(std::array{MutableBytes(&beyond, 1)}, 1, ReadInto(read)); });
    ASSERT_TRUE(Await(read));
    EXPECT_EQ(read->status.code(), StatusCode::kUnavailable) << read->status.ToString();
  }
}

TEST_P(TransportConformance, AReadThatCannotBeFilledFails) {
  MakeWorld(2);
  const Ends ends = Join(0, 1);
  ASSERT_NE(ends.accepting, nullptr);
  const ByteBuffer bytes = Pattern(9, 0, 50);
  ByteBuffer into(100);
  const auto read = MakeOutcome();
  const auto written = MakeOutcome();
  On(1, [&] { ends.accepting->Read(std::array{MutableBytes(into)}, 51, ReadInto(read)); });
  On(0, [&] { ends.connecting->Write(std::array{ConstBytes(bytes)}, WriteInto(written)); });
  ASSERT_TRUE(Await(written));
  On(0, [&] { Drop(0, ends.connecting); });
  ASSERT_TRUE(Await(read));
  EXPECT_EQ(read->status.code(), StatusCode::kUnavailable) << read->status.ToString();
}

TEST_P(TransportConformance, NothingWorksAfterClose) {
  MakeWorld(2);
  const Ends ends = Join(0, 1);
  ASSERT_NE(ends.accepting, nullptr);
  // Bytes that arrived before the close are not read after it either.
  const ByteBuffer bytes(10);
  const auto earlier = MakeOutcome();
  On(1, [&] { ends.accepting->Write(std::array{ConstBytes(bytes)}, WriteInto(earlier)); });
  ASSERT_TRUE(Await(earlier));
  std::byte byte{};
  const auto read = MakeOutcome();
  const auto write = MakeOutcome();
  On(0, [&] {
    ends.connecting->Close(Status(StatusCode::kAborted, "the first reason"));
    ends.connecting->Close(OkStatus());
    ends.connecting->Read(std::array{MutableBytes(&byte, 1)}, 1, ReadInto(read));
    ends.connecting->Write(std::array{ConstBytes(&byte, 1)}, WriteInto(write));
  });
  ASSERT_TRUE(Await(read));
  ASSERT_TRUE(Await(write));
  EXPECT_EQ(read->status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(write->status.code(), StatusCode::kUnavailable);
}

TEST_P(TransportConformance, WritingToAPeerThatIsGoneFailsInTheEnd) {
  MakeWorld(2);
  const Ends ends = Join(0, 1);
  ASSERT_NE(ends.accepting, nullptr);
  On(1, [&] { Drop(1, ends.accepting); });
  const auto sent =
      StartSending(*world_, 0, ends.connecting,
                   {.seed = 1, .total = GetParam().many_bytes, .largest_piece = 4096});
  ASSERT_TRUE(Await(sent));
  EXPECT_EQ(sent->status.code(), StatusCode::kUnavailable) << sent->status.ToString();
}

TEST_P(TransportConformance, ACompletionMayDestroyItsConnection) {
  for (const bool in_read : {true, false}) {
    SCOPED_TRACE(in_read ? "in a read" : "in a write");
    MakeWorld(2);
    const Ends ends = Join(0, 1);
    ASSERT_NE(ends.accepting, nullptr);
    std::array<std::byte, 64> memory{};
    const std::array<std::byte, 1> sent{};  // the other thread's: not part of `memory`
    const auto one = MakeOutcome();
    const auto other = MakeOutcome();
    On(1, [&] {
      ends.accepting->Write(std::array{ConstBytes(sent)}, [](Status) {});
    });
    const ByteBuffer many(GetParam().many_bytes);
    On(0, [&] {
      if (in_read) {
        ends.connecting->Write(std::array{ConstBytes(many)}, WriteInto(other));
        ends.connecting->Read(std::array{MutableBytes(memory)}, 1,
                              [&, one](Status status, std::size_t) {
                                Drop(0, ends.connecting);
                                one->status = std::move(status);
                                one->fired.Add();
                              });
      } else {
        ends.connecting->Read(std::array{MutableBytes(memory)}, 2, ReadInto(other));
        ends.connecting->Write(std::array{ConstBytes(many).first(1)}, [&, one](Status status) {
          Drop(0, ends.connecting);
          one->status = std::move(status);
          one->fired.Add();
        });
      }
    });
    ASSERT_TRUE(Await(one));
    ASSERT_TRUE(Await(other));
    EXPECT_TRUE(one->status.ok()) << one->status.ToString();
    EXPECT_EQ(other->status.code(), StatusCode::kUnavailable) << other->status.ToString();
    ASSERT_TRUE(Settle());
    EXPECT_EQ(one->fired.value() + other->fired.value(), 2u);
    TearDown();
  }
}

TEST_P(TransportConformance, CountersCountWhatMoved) {
  MakeWorld(2);
  const Ends ends = Join(0, 1);
  ASSERT_NE(ends.accepting, nullptr);
  const std::size_t total = std::min<std::size_t>(30'011, GetParam().many_bytes / 4);
  const TransferOptions options{.seed = 4, .total = total, .largest_piece = 900, .most_buffers = 4};
  const auto sent = StartSending(*world_, 0, ends.connecting, options);
  const auto arrived = StartReceiving(*world_, 1, ends.accepting, options);
  ASSERT_TRUE(Await(sent));
  ASSERT_TRUE(Await(arrived));
  ConnectionCounters out;
  ConnectionCounters in;
  On(0, [&] { out = ends.connecting->counters(); });
  On(1, [&] { in = ends.accepting->counters(); });
  EXPECT_EQ(out.bytes_written, total);
  EXPECT_EQ(out.bytes_read, 0u);
  EXPECT_EQ(in.bytes_read, total);
  EXPECT_EQ(in.bytes_written, 0u);
  EXPECT_GE(out.wire_bytes_out, total);
  EXPECT_GE(in.wire_bytes_in, total);
}

TEST_P(TransportConformance, AnAddressHasOneListener) {
  MakeWorld(2);
  On(0, [&] {
    auto first = world_->context(0).Listen(world_->listen_address(0), [](auto) {});
    auto second = world_->context(0).Listen(world_->listen_address(0), [](auto) {});
    ASSERT_TRUE(first.ok()) << first.status().ToString();
    ASSERT_TRUE(second.ok()) << second.status().ToString();
    const Address address = (*first)->address();
    EXPECT_NE(address.port, 0);
    EXPECT_NE(address, (*second)->address());
    EXPECT_EQ(address.host, world_->listen_address(0).host);
    auto taken = world_->context(0).Listen(address, [](auto) {});
    EXPECT_EQ(taken.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(taken.status().message().find(address.ToString()), std::string::npos)
        << taken.status().message();
    *std::move(first) = nullptr;
    auto again = world_->context(0).Listen(address, [](auto) {});
    EXPECT_TRUE(again.ok()) << again.status().ToString();
  });
}

TEST_P(TransportConformance, AConnectThatNobodyAnswersFailsAfterItsTimeout) {
  MakeWorld(1);
  const Address nobody = world_->deserted_address();
  const auto outcome = MakeOutcome();
  TimePoint begin;
  TimePoint end;
  bool inside = false;
  On(0, [&] {
    begin = world_->executor(0).now();
    inside = true;
    world_->context(0).Connect(nobody, milliseconds(60), [&, outcome](auto result) {
      EXPECT_FALSE(inside);
      end = world_->executor(0).now();
      outcome->status = result.status();
      outcome->fired.Add();
    });
    inside = false;
  });
  ASSERT_TRUE(Await(outcome));
  EXPECT_EQ(outcome->status.code(), StatusCode::kDeadlineExceeded) << outcome->status.ToString();
  EXPECT_NE(outcome->status.message().find(nobody.ToString()), std::string::npos)
      << outcome->status.message();
  EXPECT_GE(end - begin, milliseconds(60));
}

TEST_P(TransportConformance, AConnectWaitsForItsListener) {
  MakeWorld(2);
  // An address that was free a moment ago, and where nobody listens yet.
  Address address;
  On(1, [&] {
    auto probe = world_->context(1).Listen(world_->listen_address(1), [](auto) {});
    ASSERT_TRUE(probe.ok());
    address = (*probe)->address();
  });
  const auto connected = MakeOutcome();
  const auto accepted = std::make_shared<Tally>();
  On(0, [&] {
    world_->context(0).Connect(address, seconds(30), [&, connected](auto result) {
      connected->status = result.status();
      if (result.ok()) connections_[0].push_back(*std::move(result));
      connected->fired.Add();
    });
  });
  const auto later = std::make_shared<Tally>();
  world_->executor(1).PostAfter(milliseconds(30), [&, later] {
    EXPECT_EQ(connected->fired.value(), 0u);
    auto listener = world_->context(1).Listen(address, [this, accepted](auto connection) {
      connections_[1].push_back(std::move(connection));
      accepted->Add();
    });
    EXPECT_TRUE(listener.ok()) << listener.status().ToString();
    if (listener.ok()) listeners_[1].push_back(*std::move(listener));
    later->Add();
  });
  ASSERT_TRUE(Await(*later));
  ASSERT_TRUE(Await(connected));
  EXPECT_TRUE(connected->status.ok()) << connected->status.ToString();
  ASSERT_TRUE(Await(*accepted));
}

TEST_P(TransportConformance, AnAcceptMayDestroyItsListener) {
  MakeWorld(2);
  Address address;
  const auto accepted = std::make_shared<Tally>();
  On(1, [&] {
    auto listener = world_->context(1).Listen(world_->listen_address(1),
                                              [this, accepted](auto connection) {
                                                connections_[1].push_back(std::move(connection));
                                                listeners_[1].clear();
                                                accepted->Add();
                                              });
    ASSERT_TRUE(listener.ok());
    address = (*listener)->address();
    listeners_[1].push_back(*std::move(listener));
  });
  const auto first = MakeOutcome();
  const auto second = MakeOutcome();
  const auto connect = [&](const SharedOutcome& outcome, Duration timeout) {
    On(0, [&] {
      world_->context(0).Connect(address, timeout, [this, outcome](auto result) {
        outcome->status = result.status();
        if (result.ok()) connections_[0].push_back(*std::move(result));
        outcome->fired.Add();
      });
    });
  };
  connect(first, seconds(30));
  ASSERT_TRUE(Await(first));
  ASSERT_TRUE(Await(*accepted));
  EXPECT_TRUE(first->status.ok());
  connect(second, milliseconds(50));
  ASSERT_TRUE(Await(second));
  EXPECT_EQ(second->status.code(), StatusCode::kDeadlineExceeded) << second->status.ToString();
  EXPECT_EQ(accepted->value(), 1u);
}

TEST_P(TransportConformance, DestroyingAContextFailsItsConnects) {
  MakeWorld(1);
  const auto outcome = MakeOutcome();
  On(0, [&] {
    world_->context(0).Connect(world_->deserted_address(), seconds(30), [outcome](auto result) {
      outcome->status = result.status();
      outcome->fired.Add();
    });
  });
  ASSERT_TRUE(world_->DestroyContext(0));
  ASSERT_TRUE(Await(outcome));
  EXPECT_EQ(outcome->status.code(), StatusCode::kUnavailable) << outcome->status.ToString();
  ASSERT_TRUE(Settle());
  EXPECT_EQ(outcome->fired.value(), 1u);
}

TEST_P(TransportConformance, ManyConnectionsDoNotMix) {
  constexpr std::size_t kParticipants = 4;
  constexpr std::size_t kEach = 3;
  MakeWorld(kParticipants);
  std::vector<SharedOutcome> outcomes;
  std::uint64_t seed = 100;
  for (std::size_t from = 0; from < kParticipants; ++from) {
    for (std::size_t to = 0; to < kParticipants; ++to) {
      for (std::size_t n = 0; n < kEach; ++n) {
        const Ends ends = Join(from, to);  // also to oneself
        ASSERT_NE(ends.accepting, nullptr);
        const std::size_t total = std::min<std::size_t>(5000 + seed, GetParam().many_bytes / 32);
        const TransferOptions there{.seed = ++seed, .total = total, .largest_piece = 1500,
                                    .most_buffers = 3};
        TransferOptions back = there;
        back.seed = ++seed;
        outcomes.push_back(StartSending(*world_, from, ends.connecting, there));
        outcomes.push_back(StartReceiving(*world_, to, ends.accepting, there));
        outcomes.push_back(StartSending(*world_, to, ends.accepting, back));
        outcomes.push_back(StartReceiving(*world_, from, ends.connecting, back));
      }
    }
  }
  for (const SharedOutcome& outcome : outcomes) {
    ASSERT_TRUE(Await(outcome));
    EXPECT_TRUE(outcome->status.ok()) << outcome->status.ToString();
  }
}

TEST_P(TransportConformance, AKilledPeerIsSeenAfterItsLastByte) {
  MakeWorld(2);
  const Ends ends = Join(0, 1);
  ASSERT_NE(ends.accepting, nullptr);
  const ByteBuffer bytes = Pattern(6, 0, 500);
  const auto written = MakeOutcome();
  On(1, [&] { ends.accepting->Write(std::array{ConstBytes(bytes)}, WriteInto(written)); });
  ASSERT_TRUE(Await(written));
  if (!world_->Kill(1)) GTEST_SKIP() << "this world cannot kill; tests/faults does it for real";
  const auto arrived =
      StartReceiving(*world_, 0, ends.connecting, {.seed = 6, .total = 500, .largest_piece = 90});
  ASSERT_TRUE(Await(arrived));
  EXPECT_TRUE(arrived->status.ok()) << arrived->status.ToString();
  std::byte beyond{};
  const auto read = MakeOutcome();
  On(0, [&] { ends.connecting->Read(std::array{MutableBytes(&beyond, 1)}, 1, ReadInto(read)); });
  ASSERT_TRUE(Await(read));
  EXPECT_EQ(read->status.code(), StatusCode::kUnavailable) << read->status.ToString();
}

}  // namespace
}  // namespace poseidon::conformance
