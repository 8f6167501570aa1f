// SPDX-License-Identifier: Apache-2.0
// TCP connections between members and against strangers, over loopback, in both modes.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/socket.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "poseidon/transport/tcp/descriptor.h"
#include "poseidon/transport/tcp/hello.h"
#include "poseidon/transport/tcp/io_executor.h"
#include "poseidon/transport/tcp/stream.h"
#include "poseidon/transport/tcp/tcp_context.h"

namespace poseidon::transport::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using Mode = Security::Mode;

constexpr Duration kPatience = seconds(30);

Token TokenOf(char secret) {
  std::array<std::byte, Token::kBytes> bytes;
  bytes.fill(static_cast<std::byte>(secret));
  return Token::FromBytes(bytes);
}

// Runs `call` on the executor and returns what it returns.
template <typename F>
auto On(Executor& executor, F call) {
  using R = decltype(call());
  std::promise<R> returned;
  executor.Post([&] {
    if constexpr (std::is_void_v<R>) {
      call();
      returned.set_value();
    } else {
      returned.set_value(call());
    }
  });
  return returned.get_future().get();
}

struct ReadOutcome {
  Status status;
  std::size_t bytes = 0;
};

// A connection, used from the test's thread.
class Peer {
 public:
  Peer() = default;
  Peer(Executor& executor, std::unique_ptr<Connection> connection)
      : executor_(&executor), connection_(std::move(connection)) {}
  Peer(Peer&&) = default;
  Peer& operator=(Peer&& other) noexcept {
    Drop();
    executor_ = other.executor_;
    connection_ = std::move(other.connection_);
    return *this;
  }
  ~Peer() { Drop(); }

  void Drop() {
    if (connection_) On(*executor_, [this] { connection_.reset(); });
  }
  Connection& operator*() { return *connection_; }
  Executor& executor() { return *executor_; }

  std::future<ReadOutcome> StartRead(std::vector<MutableBytes> into, std::size_t min_bytes) {
    auto done = std::make_shared<std::promise<ReadOutcome>>();
    On(*executor_, [&] {
      connection_->Read(into, min_bytes, [done](const Status& status, std::size_t bytes) {
        done->set_value({status, bytes});
      });
    });
    return done->get_future();
  }
  std::future<Status> StartWrite(std::vector<ConstBytes> from) {
    auto done = std::make_shared<std::promise<Status>>();
    On(*executor_, [&] {
      connection_->Write(from, [done](const Status& status) { done->set_value(status); });
    });
    return done->get_future();
  }
  ReadOutcome Read(MutableBytes into) { return StartRead({into}, into.size()).get(); }
  Status Write(ConstBytes from) { return StartWrite({from}).get(); }
  void Close() {
    On(*executor_, [this] { connection_->Close(OkStatus()); });
  }
  ConnectionCounters counters() {
    return On(*executor_, [this] { return connection_->counters(); });
  }

 private:
  Executor* executor_ = nullptr;
  std::unique_ptr<Connection> connection_;
};

// A process's worth of network: an executor and a context, and a listener if wanted.
class Member {
 public:
  explicit Member(TcpOptions options) {
    context_ = On(executor_, [&] { return *TcpContext::Make(executor_, std::move(options)); });
  }
  ~Member() {
    On(executor_, [this] {
      accepted_.clear();
      listener_.reset();
      context_.reset();
    });
  }

  Address Listen() {
    return On(executor_, [this] {
      listener_ = *context_->ListenTcp({}, [this](std::unique_ptr<Connection> connection) {
        std::lock_guard lock(mutex_);
        accepted_.push_back(std::move(connection));
        arrived_.notify_all();
      });
      return listener_->address();
    });
  }
  void StopListening() {
    On(executor_, [this] { listener_.reset(); });
  }
  Peer Accepted() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !accepted_.empty(); });
    Peer peer(executor_, std::move(accepted_.front()));
    accepted_.erase(accepted_.begin());
    return peer;
  }
  std::size_t accepted_count() {
    std::lock_guard lock(mutex_);
    return accepted_.size();
  }
  std::future<Result<std::unique_ptr<Connection>>> StartConnect(const Address& address,
                                                                Duration timeout = kPatience) {
    auto done = std::make_shared<std::promise<Result<std::unique_ptr<Connection>>>>();
    On(executor_, [&] {
      context_->Connect(address, timeout, [done](Result<std::unique_ptr<Connection>> result) {
        done->set_value(std::move(result));
      });
    });
    return done->get_future();
  }
  Peer Connect(const Address& address) {
    Result<std::unique_ptr<Connection>> connection = StartConnect(address).get();
    return Peer(executor_, *std::move(connection));
  }
  // Of a connect that must not succeed.
  Status ConnectFailure(const Address& address, Duration timeout = kPatience) {
    Result<std::unique_ptr<Connection>> connection = StartConnect(address, timeout).get();
    if (!connection.ok()) return connection.status();
    Peer(executor_, *std::move(connection)).Drop();
    return OkStatus();
  }
  StrangerCounters strangers() {
    return On(executor_, [this] { return listener_->strangers(); });
  }
  TcpContext& context() { return *context_; }
  void DropContext() {
    On(executor_, [this] { context_.reset(); });
  }
  IoExecutor& executor() { return executor_; }

 private:
  IoExecutor executor_;
  std::unique_ptr<TcpContext> context_;
  std::unique_ptr<TcpListener> listener_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::unique_ptr<Connection>> accepted_;
};

ByteBuffer RandomBytes(std::size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  ByteBuffer bytes(size);
  for (std::size_t i = 0; i < size; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, size - i));
  }
  return bytes;
}

// A stranger's blocking socket.
class RawSocket {
 public:
  static RawSocket ConnectTo(const Address& address) {
    RawSocket socket(UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
    const int yes = 1;
    ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const sockaddr_in where = At(address.port);
    EXPECT_EQ(::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&where), sizeof where), 0);
    return socket;
  }
  static RawSocket Listening() {
    RawSocket socket(UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
    const sockaddr_in where = At(0);
    EXPECT_EQ(::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&where), sizeof where), 0);
    EXPECT_EQ(::listen(socket.fd(), 16), 0);
    return socket;
  }
  explicit RawSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  Address address() const {
    sockaddr_in where{};
    socklen_t size = sizeof where;
    EXPECT_EQ(::getsockname(fd(), reinterpret_cast<sockaddr*>(&where), &size), 0);
    return {.host = "127.0.0.1", .port = ntohs(where.sin_port)};
  }
  RawSocket Accept() const { return RawSocket(UniqueFd(::accept(fd(), nullptr, nullptr))); }
  // False when the other end has closed.
  bool Send(ConstBytes bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return true;
  }
  ByteBuffer Receive(std::size_t size) const {
    ByteBuffer bytes(size);
    std::size_t have = 0;
    while (have < size) {
      const ssize_t n = ::recv(fd(), bytes.data() + have, size - have, 0);
      if (n <= 0) break;
      have += static_cast<std::size_t>(n);
    }
    bytes.resize(have);
    return bytes;
  }
  // Everything up to the end of the stream, which it waits for.
  ByteBuffer ReceiveAll() const { return Receive(std::size_t{1} << 20); }
  void FinishWriting() const { ::shutdown(fd(), SHUT_WR); }
  void Reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    fd_ = UniqueFd();
  }

 private:
  static sockaddr_in At(std::uint16_t port) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    where.sin_port = htons(port);
    return where;
  }
  UniqueFd fd_;
};

// Between a client and a server: passes bytes on in pieces of `piece` bytes and shows each piece to
// `change`, which may damage it.
class Relay {
 public:
  using Change = std::function<void(MutableBytes piece, std::size_t offset, bool to_server)>;
  Relay(const Address& server, std::size_t piece, Change change = {})
      : piece_(piece), change_(std::move(change)), door_(RawSocket::Listening()) {
    thread_ = std::thread([this, server] {
      const RawSocket client = door_.Accept();
      const RawSocket upstream = RawSocket::ConnectTo(server);
      std::thread back([&] { Pass(upstream, client, false); });
      Pass(client, upstream, true);
      back.join();
    });
  }
  ~Relay() { thread_.join(); }
  Address address() const { return door_.address(); }

 private:
  void Pass(const RawSocket& from, const RawSocket& to, bool to_server) const {
    ByteBuffer piece(piece_);
    std::size_t offset = 0;
    for (;;) {
      const ssize_t n = ::recv(from.fd(), piece.data(), piece.size(), 0);
      if (n <= 0) break;
      const MutableBytes bytes = MutableBytes(piece).first(static_cast<std::size_t>(n));
      if (change_) change_(bytes, offset, to_server);
      offset += bytes.size();
      if (!to.Send(bytes)) break;
    }
    to.FinishWriting();
  }
  const std::size_t piece_;
  const Change change_;
  const RawSocket door_;
  std::thread thread_;
};

class Tcp : public testing::TestWithParam<Mode> {
 protected:
  static TcpOptions Options(char secret = 'a', Mode mode = GetParam()) {
    return {.security = {.mode = mode, .token = TokenOf(secret)}};
  }
  static bool Tls() { return GetParam() == Mode::kTls; }

  // Whether a member can still join and move bytes both ways.
  void ExpectOpenForMembers(Member& server, const Address& address) {
    Member client(Options());
    Peer near = client.Connect(address);
    Peer far = server.Accepted();
    const ByteBuffer sent = RandomBytes(100'000, 1);
    ByteBuffer received(sent.size());
    std::future<Status> written = near.StartWrite({sent});
    EXPECT_TRUE(far.Read(received).status.ok());
    EXPECT_TRUE(written.get().ok());
    EXPECT_EQ(received, sent);
    written = far.StartWrite({sent});
    std::fill(received.begin(), received.end(), std::byte{0});
    EXPECT_TRUE(near.Read(received).status.ok());
    EXPECT_TRUE(written.get().ok());
    EXPECT_EQ(received, sent);
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, Tcp, testing::Values(Mode::kTls, Mode::kAuth),
                         [](const auto& mode) {
                           return mode.param == Mode::kTls ? "Tls" : "Auth";
                         });

// --- between members ---

TEST_P(Tcp, MembersMoveBytes) {
  Member server(Options());
  const Address address = server.Listen();
  EXPECT_EQ(address.host, "127.0.0.1") << "nothing listens beyond loopback unless an option names an address";
  ExpectOpenForMembers(server, address);
  EXPECT_EQ(server.strangers().total(), 0u);
}

TEST_P(Tcp, NamesItsPeerAndItsProtection) {
  Member server(Options());
  Member client(Options());
  const Address address = server.Listen();
  Peer near = client.Connect(address);
  Peer far = server.Accepted();
  EXPECT_EQ((*near).peer_name(), address.ToString());
  EXPECT_THAT((*far).peer_name(), testing::StartsWith("127.0.0.1:"));
  EXPECT_EQ((*near).integrity_protected(), Tls());
  EXPECT_EQ((*far).integrity_protected(), Tls());
}

// Large transfers in both directions at once, cut into buffers of odd sizes on each side.
TEST_P(Tcp, BigTransfersArriveUnchanged) {
  constexpr std::size_t kBytes = 24 << 20;
  Member server(Options());
  Member client(Options());
  Peer near = client.Connect(server.Listen());
  Peer far = server.Accepted();

  const auto send = [](Peer& peer, unsigned seed, std::uint32_t& crc) {
    std::mt19937 random(seed);
    ByteBuffer bytes = RandomBytes(kBytes, seed);
    crc = Crc32c(bytes);
    ConstBytes left = bytes;
    while (!left.empty()) {
      std::vector<ConstBytes> buffers;
      for (std::size_t n = 1 + random() % 100; n > 0 && !left.empty(); --n) {
        const std::size_t limit = random() % 8 == 0 ? 300'000 : 200;
        const std::size_t size = std::min<std::size_t>(random() % limit, left.size());
        buffers.push_back(left.first(size));
        left = left.subspan(size);
      }
      ASSERT_TRUE(peer.StartWrite(buffers).get().ok());
    }
  };
  const auto receive = [](Peer& peer, unsigned seed, std::uint32_t& crc) {
    std::mt19937 random(seed);
    ByteBuffer bytes(kBytes);
    std::size_t have = 0;
    while (have < kBytes) {
      std::vector<MutableBytes> buffers;
      std::size_t room = 0;
      for (std::size_t n = 1 + random() % 100; n > 0 && have + room < kBytes; --n) {
        const std::size_t limit = random() % 8 == 0 ? 300'000 : 200;
        const std::size_t size = std::min<std::size_t>(random() % limit, kBytes - have - room);
        buffers.push_back(MutableBytes(bytes).subspan(have + room, size));
        room += size;
      }
      if (room == 0) continue;
      const std::size_t min_bytes = 1 + random() % room;
      const ReadOutcome outcome = peer.StartRead(buffers, min_bytes).get();
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
      ASSERT_GE(outcome.bytes, min_bytes);
      ASSERT_LE(outcome.bytes, room);
      have += outcome.bytes;
    }
    crc = Crc32c(bytes);
  };
  std::uint32_t sent_up = 0, sent_down = 0, got_up = 1, got_down = 1;
  std::thread threads[] = {std::thread([&] { send(near, 1, sent_up); }),
                           std::thread([&] { receive(far, 2, got_up); }),
                           std::thread([&] { send(far, 3, sent_down); }),
                           std::thread([&] { receive(near, 4, got_down); })};
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got_up, sent_up);
  EXPECT_EQ(got_down, sent_down);
}

TEST_P(Tcp, CountsBytesOfStreamAndWire) {
  Member server(Options());
  Member client(Options());
  Peer near = client.Connect(server.Listen());
  Peer far = server.Accepted();
  const ConnectionCounters before = near.counters();
  const ByteBuffer sent(100'000);
  ByteBuffer received(sent.size());
  std::future<Status> written = near.StartWrite({sent});
  ASSERT_TRUE(far.Read(received).status.ok());
  ASSERT_TRUE(written.get().ok());
  const ConnectionCounters after = near.counters();
  EXPECT_EQ(after.bytes_written, sent.size());
  EXPECT_EQ(far.counters().bytes_read, sent.size());
  // 22 bytes for each of the 7 records of at most 16 KiB.
  EXPECT_EQ(after.wire_bytes_out - before.wire_bytes_out, sent.size() + (Tls() ? 7 * 22 : 0));
  EXPECT_EQ(far.counters().wire_bytes_in, after.wire_bytes_out);
  if (!Tls()) {
    EXPECT_EQ(before.wire_bytes_out, Hello::kHeaderBytes + Hello::kProofBytes);
    EXPECT_EQ(before.wire_bytes_in, Hello::kHeaderBytes + Hello::kProofBytes);
  }
}

// Handshake and data through a network that delivers single bytes.
TEST_P(Tcp, WorksWhenBytesArriveOneByOne) {
  Member server(Options());
  Member client(Options());
  Relay relay(server.Listen(), 1);
  Peer near = client.Connect(relay.address());
  Peer far = server.Accepted();
  const ByteBuffer sent = RandomBytes(5000, 9);
  ByteBuffer received(sent.size());
  std::future<Status> written = near.StartWrite({sent});
  for (std::byte& byte : received) {
    ASSERT_TRUE(far.Read({&byte, 1}).status.ok());
  }
  EXPECT_TRUE(written.get().ok());
  EXPECT_EQ(received, sent);
}

TEST_P(Tcp, ReadsSingleBytesOfOneBigWrite) {
  Member server(Options());
  Member client(Options());
  Peer near = client.Connect(server.Listen());
  Peer far = server.Accepted();
  const ByteBuffer sent = RandomBytes(40'000, 5);
  ByteBuffer received(sent.size());
  std::future<Status> written = near.StartWrite({sent});
  for (std::byte& byte : received) ASSERT_TRUE(far.Read({&byte, 1}).status.ok());
  EXPECT_TRUE(written.get().ok());
  EXPECT_EQ(received, sent);
}

TEST_P(Tcp, ChangesItsKeysOnTheWay) {
  TcpOptions options = Options();
  options.rekey_after_bytes = 50'000;
  Member server(options);
  Member client(options);
  Peer near = client.Connect(server.Listen());
  Peer far = server.Accepted();
  const std::uint64_t hello = near.counters().wire_bytes_out;
  const ByteBuffer sent = RandomBytes(3 << 20, 6);
  ByteBuffer up(sent.size());
  ByteBuffer down(sent.size());
  std::future<Status> written_up = near.StartWrite({sent});
  std::future<Status> written_down = far.StartWrite({sent});
  std::future<ReadOutcome> read_up = far.StartRead({up}, up.size());
  std::future<ReadOutcome> read_down = near.StartRead({down}, down.size());
  EXPECT_TRUE(written_up.get().ok());
  EXPECT_TRUE(written_down.get().ok());
  EXPECT_TRUE(read_up.get().status.ok());
  EXPECT_TRUE(read_down.get().status.ok());
  if (Tls()) {
    const std::size_t records = sent.size() >> 14;
    EXPECT_GT(near.counters().wire_bytes_out - hello, sent.size() + 22 * records + 400)
        << "each change of keys is a record of its own";
  }
  EXPECT_EQ(up, sent);
  EXPECT_EQ(down, sent);
}

TEST_P(Tcp, ADamagedByteIsFoundUnderTls) {
  if (!Tls()) GTEST_SKIP() << "plain bytes carry checksums of their own, one layer up";
  Member server(Options());
  Member client(Options());
  std::atomic<bool> damage = false;
  Relay relay(server.Listen(), 1000, [&](MutableBytes piece, std::size_t, bool to_server) {
    if (to_server && damage.exchange(false)) piece[piece.size() / 2] ^= std::byte{1};
  });
  Peer near = client.Connect(relay.address());
  Peer far = server.Accepted();
  ByteBuffer received(10'000);
  std::future<ReadOutcome> read = far.StartRead({received}, received.size());
  damage = true;
  ASSERT_TRUE(near.Write(RandomBytes(10'000, 3)).ok());
  EXPECT_EQ(read.get().status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(far.Read(received).status.code(), StatusCode::kDataLoss);
  EXPECT_FALSE(far.Write(received).ok());  // refused or lost, but no crash
}

// --- ends ---

TEST_P(Tcp, WhatWasWrittenBeforeCloseArrivesEvenIfBytesWereLeftUnread) {
  // Room for all of it where it is sent and for little where it is to arrive, so that most of it is
  // still on this side when the connection is closed.
  TcpOptions small = Options();
  small.socket.receive_buffer_bytes = 8 * 1024;
  TcpOptions large = Options();
  large.socket.send_buffer_bytes = 400 * 1024;
  Member server(small);
  Member client(large);
  Peer near = client.Connect(server.Listen());
  Peer far = server.Accepted();
  ASSERT_TRUE(far.Write(RandomBytes(5000, 1)).ok());
  const ByteBuffer last_words = RandomBytes(150'000, 2);
  ASSERT_TRUE(near.Write(last_words).ok());
  near.Close();
  ByteBuffer received(last_words.size());
  const ReadOutcome outcome = far.Read(received);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_EQ(received, last_words);
  EXPECT_EQ(far.Read(received).status.code(), StatusCode::kUnavailable);
}

TEST_P(Tcp, DroppingAConnectionCompletesWhatIsPending) {
  Member server(Options());
  Member client(Options());
  Peer near = client.Connect(server.Listen());
  Peer far = server.Accepted();
  ByteBuffer room(10);
  const ByteBuffer big(64 << 20);  // more than any socket takes while nobody reads
  std::future<ReadOutcome> read = near.StartRead({room}, room.size());
  std::future<Status> write = near.StartWrite({big});
  near.Drop();
  EXPECT_EQ(read.get().status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(write.get().code(), StatusCode::kUnavailable);
}

TEST_P(Tcp, CloseGivesItsReasonToPendingAndUnavailableToLaterCalls) {
  Member server(Options());
  Member client(Options());
  Peer near = client.Connect(server.Listen());
  Peer far = server.Accepted();
  ByteBuffer room(10);
  std::future<ReadOutcome> read = near.StartRead({room}, room.size());
  const Status reason(StatusCode::kAborted, "worker 2 died", StatusScope::kPeer, 2);
  On(near.executor(), [&] {
    (*near).Close(reason);
    (*near).Close(OkStatus());
  });
  EXPECT_EQ(read.get().status, reason);
  EXPECT_EQ(near.Read(room).status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(near.Write(room).code(), StatusCode::kUnavailable);
  EXPECT_EQ(far.Read(room).status.code(), StatusCode::kUnavailable);
}

// A completion may drop the connection it belongs to.
TEST_P(Tcp, ACompletionMayDropItsConnection) {
  Member server(Options());
  Member client(Options());
  Peer far_owner;
  Result<std::unique_ptr<Connection>> connected = client.StartConnect(server.Listen()).get();
  std::unique_ptr<Connection> near = *std::move(connected);
  Peer far = server.Accepted();
  std::promise<void> dropped;
  std::byte room;
  const MutableBytes into[] = {{&room, 1}};
  On(client.executor(), [&] {
    near->Read(into, 1, [&](const Status&, std::size_t) {
      near.reset();
      dropped.set_value();
    });
  });
  ASSERT_TRUE(far.Write(AsBytes("x")).ok());
  dropped.get_future().wait();
  EXPECT_EQ(far.Read({&room, 1}).status.code(), StatusCode::kUnavailable);
}

TEST_P(Tcp, DroppingTheContextFailsConnectsUnderWay) {
  Member client(Options());
  const RawSocket silent = RawSocket::Listening();
  auto to_silent = client.StartConnect(silent.address());
  const Address nobody = RawSocket::Listening().address();
  auto to_nobody = client.StartConnect(nobody);
  client.DropContext();
  EXPECT_EQ(to_silent.get().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(to_nobody.get().status().code(), StatusCode::kUnavailable);
}

TEST_P(Tcp, ConnectionsOutliveContextAndListener) {
  Member server(Options());
  Member client(Options());
  Peer near = client.Connect(server.Listen());
  Peer far = server.Accepted();
  server.StopListening();
  server.DropContext();
  client.DropContext();
  std::byte room;
  ASSERT_TRUE(near.Write(AsBytes("x")).ok());
  EXPECT_TRUE(far.Read({&room, 1}).status.ok());
}

// --- addresses ---

TEST_P(Tcp, APortInUseIsNamed) {
  Member first(Options());
  const Address address = first.Listen();
  Member second(Options());
  const Status status =
      On(second.executor(), [&] { return second.context().Listen(address, {}).status(); });
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr(address.ToString()));
}

TEST_P(Tcp, TakesTheFirstFreePortOfItsRange) {
  const Address free = RawSocket::Listening().address();
  TcpOptions options = Options();
  options.ports = {.first = free.port, .last = free.port};
  Member first(options);
  EXPECT_EQ(first.Listen().port, free.port);
  Member second(options);
  const Status status = On(second.executor(), [&] {
    return second.context().Listen({.host = "127.0.0.1"}, {}).status();
  });
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(free.port)));
}

TEST_P(Tcp, RefusesNamesAndForeignAddresses) {
  Member member(Options());
  const auto listen = [&](const std::string& host) {
    return On(member.executor(),
              [&] { return member.context().Listen({.host = host}, {}).status(); });
  };
  EXPECT_EQ(listen("localhost").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(listen("192.0.2.1").code(), StatusCode::kNotFound);
  const Status status = member.ConnectFailure({.host = "localhost", .port = 1});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("localhost"));
}

TEST_P(Tcp, SpeaksOverIpv6) {
  Member server(Options());
  Member client(Options());
  std::promise<std::unique_ptr<Connection>> accepted;
  Result<std::unique_ptr<Listener>> listener = On(server.executor(), [&] {
    return server.context().Listen({.host = "::1"}, [&](std::unique_ptr<Connection> connection) {
      accepted.set_value(std::move(connection));
    });
  });
  if (!listener.ok()) GTEST_SKIP() << listener.status().ToString();
  Peer near = client.Connect((*listener)->address());
  Peer far(server.executor(), accepted.get_future().get());
  std::byte room;
  ASSERT_TRUE(near.Write(AsBytes("x")).ok());
  EXPECT_TRUE(far.Read({&room, 1}).status.ok());
  On(server.executor(), [&] { listener->reset(); });
}

TEST_P(Tcp, WaitsForAListenerThatIsNotThereYet) {
  const Address address = RawSocket::Listening().address();
  Member client(Options());
  auto connecting = client.StartConnect(address);
  TcpOptions options = Options();
  options.ports = {.first = address.port, .last = address.port};
  Member server(options);
  server.Listen();
  Peer near(client.executor(), *connecting.get());
  Peer far = server.Accepted();
}

TEST_P(Tcp, SaysThatNothingListens) {
  const Address address = RawSocket::Listening().address();
  Member client(Options());
  const Status status = client.ConnectFailure(address, milliseconds(500));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("nothing listens at " + address.ToString()));
}

TEST_P(Tcp, SaysThatTheOtherEndStaysSilent) {
  const RawSocket silent = RawSocket::Listening();
  Member client(Options());
  const Status status = client.ConnectFailure(silent.address(), milliseconds(50));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr(silent.address().ToString()));
}

TEST_P(Tcp, SaysThatAHostCannotBeReached) {
  Member client(Options());
  // In a namespace of its own, the executor's thread has no network at all, not even loopback.
  if (On(client.executor(), [] { return ::unshare(CLONE_NEWNET); }) != 0) {
    GTEST_SKIP() << "no permission to make a network namespace";
  }
  const Address address{.host = "127.0.0.1", .port = 1};
  const Status status = client.ConnectFailure(address);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("host " + address.ToString() + " cannot be reached"));
}

TEST_P(Tcp, LeavesNoDescriptorToChildren) {
  Member server(Options());
  Member client(Options());
  Peer near = client.Connect(server.Listen());
  Peer far = server.Accepted();
  int sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    struct stat status {};
    if (::fstat(fd, &status) != 0) continue;
    int listening = 0;
    socklen_t size = sizeof listening;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0) continue;
    sockaddr_storage address{};
    size = sizeof address;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    if (address.ss_family != AF_INET) continue;
    ++sockets;
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_EQ(sockets, 3);
}

// --- strangers ---

TEST_P(Tcp, AnotherTokenIsRefusedAtOnce) {
  Member server(Options('a'));
  const Address address = server.Listen();
  Member stranger(Options('b'));
  const Status status = stranger.ConnectFailure(address);
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(status.message(),
              HasSubstr("authentication with " + address.ToString() + " failed: the token"));
  ExpectOpenForMembers(server, address);
  EXPECT_EQ(server.accepted_count(), 0u);
  EXPECT_EQ(server.strangers().total(), 1u);
}

TEST_P(Tcp, TheOtherModeIsRefusedAtOnceWithTheSameWords) {
  Member server(Options());
  const Address address = server.Listen();
  Member other(Options('a', Tls() ? Mode::kAuth : Mode::kTls));
  const Status mode = other.ConnectFailure(address);
  Member stranger(Options('b'));
  EXPECT_EQ(mode, stranger.ConnectFailure(address));
  EXPECT_EQ(mode.code(), StatusCode::kPermissionDenied);
  ExpectOpenForMembers(server, address);
  EXPECT_EQ(server.strangers().total(), 2u);
}

TEST_P(Tcp, OtherVersionsAreARefusalOfTheirOwn) {
  TcpOptions old = Options();
  old.versions = {.min = 1, .max = 2};
  TcpOptions recent = Options();
  recent.versions = {.min = 3, .max = 4};
  Member server(recent);
  const Address address = server.Listen();
  Member client(old);
  const Status status = client.ConnectFailure(address);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("versions"));
  EXPECT_EQ(server.strangers().versions_differ, 1u);

  TcpOptions both = Options();
  both.versions = {.min = 2, .max = 3};
  Member bridge(both);
  Peer near = bridge.Connect(address);
  Peer far = server.Accepted();
}

TEST_P(Tcp, ATlsClientWithoutTheKeyIsRefused) {
  Member server(Options());
  const Address address = server.Listen();
  const RawSocket socket = RawSocket::ConnectTo(address);
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
  SSL_set_fd(ssl.get(), socket.fd());
  EXPECT_LE(SSL_connect(ssl.get()), 0);
  socket.ReceiveAll();
  EXPECT_EQ(server.strangers().refused, 1u);
  ExpectOpenForMembers(server, address);
}

// A server without the token that completes a TLS handshake by a certificate must not get a
// member's gradients.
TEST(TcpTls, AServerWithACertificateInsteadOfTheKeyIsRefused) {
  const RawSocket door = RawSocket::Listening();
  std::thread impostor([&door] {
    const RawSocket socket = door.Accept();
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"),
                                                                  &EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), &X509_free);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
    X509_set_pubkey(certificate.get(), key.get());
    X509_sign(certificate.get(), key.get(), EVP_sha256());
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
        SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
    SSL_CTX_use_certificate(context.get(), certificate.get());
    SSL_CTX_use_PrivateKey(context.get(), key.get());
    SSL_CTX_set_alpn_select_cb(
        context.get(),
        [](SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
           unsigned, void*) {
          *size = offered[0];
          *chosen = offered + 1;
          return SSL_TLSEXT_ERR_OK;
        },
        nullptr);
    const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
    SSL_set_fd(ssl.get(), socket.fd());
    EXPECT_LE(SSL_accept(ssl.get()), 0);
    socket.ReceiveAll();
  });
  Member client({.security = {.mode = Mode::kTls, .token = TokenOf('a')}});
  EXPECT_EQ(client.ConnectFailure(door.address()).code(), StatusCode::kPermissionDenied);
  impostor.join();
}

TEST_P(Tcp, RandomBytesAreRefused) {
  Member server(Options());
  const Address address = server.Listen();
  std::mt19937 random(7);
  for (unsigned i = 0; i < 200; ++i) {
    const RawSocket socket = RawSocket::ConnectTo(address);
    ByteBuffer bytes = RandomBytes(1 + random() % 40'000, i);
    // Some look like the beginning of a TLS hello, or of one of ours.
    static constexpr std::string_view kTls = "\x16\x03\x01";
    static constexpr std::string_view kHello = "POSEIDON\x01";
    const std::string_view start = i % 3 == 0 ? kTls : i % 3 == 1 ? kHello : std::string_view();
    bytes.insert(bytes.begin(), AsBytes(start).begin(), AsBytes(start).end());
    socket.Send(bytes);
    socket.FinishWriting();
    EXPECT_LE(socket.ReceiveAll().size(), 200u) << "a stranger gets little back";
  }
  EXPECT_EQ(server.strangers().total(), 200u);
  ExpectOpenForMembers(server, address);
}

TEST_P(Tcp, APortScanIsHarmless) {
  Member server(Options());
  const Address address = server.Listen();
  for (int i = 0; i < 200; ++i) {
    RawSocket socket = RawSocket::ConnectTo(address);
    if (i % 2 == 0) socket.Reset();
  }
  ExpectOpenForMembers(server, address);
}

TEST_P(Tcp, AThousandIdleConnectionsKeepNoMemberOut) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 1300) GTEST_SKIP() << "the system allows too few descriptors";

  Member server(Options());
  const Address address = server.Listen();
  ExpectOpenForMembers(server, address);
  std::vector<RawSocket> crowd;
  crowd.reserve(1000);
  for (int i = 0; i < 1000; ++i) crowd.push_back(RawSocket::ConnectTo(address));
  ExpectOpenForMembers(server, address);
  // Also while more of them keep coming.
  std::atomic<bool> stop = false;
  std::thread more([&] {
    for (std::size_t i = 0; !stop; ++i) {
      crowd[i % 1000] = RawSocket::ConnectTo(address);
      // A thousand a second: without a pause this is a race for the processor, not for places.
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  for (int i = 0; i < 5; ++i) ExpectOpenForMembers(server, address);
  stop = true;
  more.join();
  EXPECT_EQ(server.accepted_count(), 0u);
  const StrangerCounters counters = server.strangers();
  EXPECT_GE(counters.crowded_out, 1000u - 64u);
}

TEST_P(Tcp, HoldsNoMoreStrangersThanItMay) {
  TcpOptions options = Options();
  options.max_strangers = 4;
  Member server(options);
  const Address address = server.Listen();
  std::vector<RawSocket> crowd;
  crowd.reserve(10);
  for (int i = 0; i < 10; ++i) crowd.push_back(RawSocket::ConnectTo(address));
  for (std::size_t i = 0; i < 6; ++i) EXPECT_TRUE(crowd[i].ReceiveAll().empty());
  EXPECT_EQ(server.strangers().crowded_out, 6u);
  char byte;
  for (std::size_t i = 6; i < 10; ++i) {
    EXPECT_EQ(::recv(crowd[i].fd(), &byte, 1, MSG_DONTWAIT), -1) << "the youngest are still held";
    EXPECT_EQ(errno, EAGAIN);
  }
}

TEST_P(Tcp, ASlowStrangerIsTurnedAway) {
  TcpOptions options = Options();
  options.authentication_deadline = milliseconds(50);
  Member server(options);
  const RawSocket silent = RawSocket::ConnectTo(server.Listen());
  EXPECT_TRUE(silent.ReceiveAll().empty());
  EXPECT_EQ(server.strangers().too_slow, 1u);
}

// Each byte comes in time, the hello as a whole does not.
TEST_P(Tcp, AStrangerThatTricklesIsTurnedAway) {
  TcpOptions options = Options();
  options.authentication_deadline = milliseconds(50);
  Member server(options);
  const RawSocket socket = RawSocket::ConnectTo(server.Listen());
  const std::string start = Tls() ? std::string("\x16\x03\x01\x3f\xff\x01\x00\x3f\xfb\x03\x03", 11)
                                  : std::string("POSEIDON\x01\x00\x01\x00\x01", 13);
  for (const char c : start + std::string(1000, '\0')) {
    // One byte whenever the server has had time to do its other work.
    if (!socket.Send(AsBytes({&c, 1}))) break;
    if (server.strangers().total() > 0) break;
    std::byte answer;
    const timeval pause{.tv_sec = 0, .tv_usec = 2000};
    ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &pause, sizeof pause);
    static_cast<void>(::recv(socket.fd(), &answer, 1, 0));
  }
  EXPECT_EQ(server.strangers().too_slow, 1u);
}

// --- the hello on a raw socket (mode kAuth) ---

class TcpAuth : public testing::Test {
 protected:
  static TcpOptions Options() { return {.security = {.mode = Mode::kAuth, .token = TokenOf('a')}}; }
  // What a member's client says in a conversation over `socket`, piece by piece.
  static std::vector<ByteBuffer> Authenticate(const RawSocket& socket, Hello::Nonce nonce = {}) {
    Hello hello(HelloRole::kClient, Key::Derive(TokenOf('a'), "poseidon hello"), {}, nonce);
    std::vector<ByteBuffer> said;
    said.push_back(hello.TakeOutput());
    socket.Send(said.back());
    while (hello.wanted() > 0) {
      const std::size_t wanted = hello.wanted();
      const ByteBuffer bytes = socket.Receive(wanted);
      if (bytes.size() < wanted) return said;
      hello.Consume(bytes);
    }
    EXPECT_EQ(hello.state(), Hello::State::kAuthenticated);
    said.push_back(hello.TakeOutput());
    socket.Send(said.back());
    return said;
  }
};

TEST_F(TcpAuth, AReplayedHelloIsRefused) {
  Member server(Options());
  const Address address = server.Listen();
  const RawSocket member = RawSocket::ConnectTo(address);
  const std::vector<ByteBuffer> said = Authenticate(member);
  ASSERT_EQ(said.size(), 2u);
  Peer far = server.Accepted();

  const RawSocket replayer = RawSocket::ConnectTo(address);
  replayer.Send(said[0]);
  EXPECT_EQ(replayer.Receive(96).size(), 96u);
  replayer.Send(said[1]);
  EXPECT_TRUE(replayer.ReceiveAll().empty());
  EXPECT_EQ(server.strangers().refused, 1u);
  EXPECT_EQ(server.accepted_count(), 0u);
}

TEST_F(TcpAuth, AClientThatSpeaksAnotherProtocolIsRefused) {
  Member server(Options());
  const RawSocket browser = RawSocket::ConnectTo(server.Listen());
  browser.Send(
      AsBytes("GET / HTTP/1.1\r\nHost: somewhere\r\nUser-Agent: something\r\n"
              "Accept: text/html\r\n\r\n"));
  EXPECT_EQ(browser.ReceiveAll().size(), Hello::kHeaderBytes);
  EXPECT_EQ(server.strangers().refused, 1u);
}

TEST_F(TcpAuth, APeerThatFinishesWritingCanStillRead) {
  Member server(Options());
  const RawSocket member = RawSocket::ConnectTo(server.Listen());
  Authenticate(member);
  Peer far = server.Accepted();
  member.Send(AsBytes("abc"));
  member.FinishWriting();
  ByteBuffer room(10);
  const ReadOutcome first = far.StartRead({room}, 3).get();
  EXPECT_TRUE(first.status.ok());
  EXPECT_EQ(first.bytes, 3u);
  EXPECT_EQ(far.Read(room).status.code(), StatusCode::kUnavailable);
  ASSERT_TRUE(far.Write(AsBytes("still here")).ok());
  EXPECT_EQ(AsString(member.Receive(10)), "still here");
  EXPECT_EQ(far.Read(room).status.code(), StatusCode::kUnavailable);
}

TEST_F(TcpAuth, AnEndInTheMiddleOfAReadIsAFailure) {
  Member server(Options());
  const RawSocket member = RawSocket::ConnectTo(server.Listen());
  Authenticate(member);
  Peer far = server.Accepted();
  ByteBuffer room(10);
  std::future<ReadOutcome> read = far.StartRead({room}, room.size());
  member.Send(AsBytes("abc"));
  member.FinishWriting();
  const ReadOutcome outcome = read.get();
  EXPECT_EQ(outcome.status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(outcome.bytes, 3u);
}

// With the default disposition of SIGPIPE, which would end the process if a send raised it.
TEST_F(TcpAuth, AResetFailsReadsAndWrites) {
  Member server(Options());
  RawSocket member = RawSocket::ConnectTo(server.Listen());
  Authenticate(member);
  Peer far = server.Accepted();
  ByteBuffer room(10);
  std::future<ReadOutcome> read = far.StartRead({room}, room.size());
  member.Reset();
  const ReadOutcome outcome = read.get();
  EXPECT_EQ(outcome.status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(outcome.status.message(), HasSubstr("reset"));
  EXPECT_EQ(outcome.status.scope(), StatusScope::kConnection);
  EXPECT_EQ(far.Write(room).code(), StatusCode::kUnavailable);
  EXPECT_EQ(far.Write(room).code(), StatusCode::kUnavailable);
}

// A process that dies with bytes unread resets its connections; its last message must not be lost.
TEST_F(TcpAuth, BytesThatArrivedBeforeAResetAreRead) {
  Member server(Options());
  RawSocket member = RawSocket::ConnectTo(server.Listen());
  Authenticate(member);
  Peer far = server.Accepted();
  ASSERT_TRUE(far.Write(AsBytes("never read")).ok());
  ASSERT_TRUE(member.Send(AsBytes("last words")));
  for (int unacknowledged = 1; unacknowledged > 0;) {
    ASSERT_EQ(::ioctl(member.fd(), SIOCOUTQ, &unacknowledged), 0);
  }
  member.Reset();
  ByteBuffer received(10);
  EXPECT_TRUE(far.Read(received).status.ok());
  EXPECT_EQ(AsString(received), "last words");
  EXPECT_EQ(far.Read(received).status.code(), StatusCode::kUnavailable);
}

// One peer that always has bytes ready does not keep another's from being read.
TEST_F(TcpAuth, ABusyPeerLeavesTurnsToOthers) {
  TcpOptions options = Options();
  options.socket.receive_buffer_bytes = 200 * 1024;
  Member server(options);
  const Address address = server.Listen();
  const RawSocket busy = RawSocket::ConnectTo(address);
  Authenticate(busy);
  Peer from_busy = server.Accepted();
  const RawSocket quiet = RawSocket::ConnectTo(address);
  Authenticate(quiet);
  Peer from_quiet = server.Accepted();

  ASSERT_TRUE(quiet.Send(AsBytes("x")));
  std::size_t ready = 0;
  const ByteBuffer bytes(std::size_t{64} << 10);
  for (;;) {
    const ssize_t n = ::send(busy.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) break;
    ready += static_cast<std::size_t>(n);
  }
  if (ready < 2 * kBytesPerTurn) GTEST_SKIP() << "the system holds too few bytes in flight";

  std::size_t busy_bytes = 0;
  std::promise<std::size_t> busy_bytes_before_quiet;
  ByteBuffer bin(std::size_t{64} << 10);
  std::byte room;
  const MutableBytes into_bin[] = {bin};
  const MutableBytes into_room[] = {{&room, 1}};
  std::promise<void> over;
  std::function<void()> read_on = [&] {
    (*from_busy).Read(into_bin, 1, [&](const Status& status, std::size_t n) {
      if (!status.ok()) return over.set_value();
      busy_bytes += n;
      read_on();  // from inside the completion: a reader cannot be busier
    });
  };
  On(server.executor(), [&] {
    read_on();
    (*from_quiet).Read(into_room, 1, [&](const Status&, std::size_t) {
      busy_bytes_before_quiet.set_value(busy_bytes);
    });
  });
  EXPECT_LE(busy_bytes_before_quiet.get_future().get(), kBytesPerTurn);
  busy.FinishWriting();
  over.get_future().wait();
  EXPECT_EQ(busy_bytes, ready);
}

// A buffer that the system cuts short would hold back a long link for good.
TEST(SendBuffer, GrowsWithTheConnectionWhereTheSystemGivesLess) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(fd.valid());
  const auto is_fixed = [&] {
    int locks = -1;
    socklen_t size = sizeof locks;
    EXPECT_EQ(::getsockopt(fd.get(), SOL_SOCKET, SO_BUF_LOCK, &locks, &size), 0);
    return (locks & SOCK_SNDBUF_LOCK) != 0;
  };
  SetSendBuffer(fd.get(), 128 << 10);
  EXPECT_TRUE(is_fixed());
  SetSendBuffer(fd.get(), 1 << 30);
  EXPECT_FALSE(is_fixed());
  SetSendBuffer(fd.get(), 128 << 10);
  EXPECT_TRUE(is_fixed());
}

}  // namespace
}  // namespace poseidon::transport::tcp
