// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_TEST_PEERS_H_
#define POSEIDON_TRANSPORT_TCP_TEST_PEERS_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "poseidon/transport/tcp/descriptor.h"
#include "poseidon/transport/tcp/io_executor.h"
#include "poseidon/transport/tcp/tcp_context.h"
#include "poseidon/transport/tcp/test_bytes.h"

// What the tests of TCP have in common: members and strangers on loopback, used from the test's thread, and the fixture of
// what holds in both modes.
namespace poseidon::transport::tcp {

using Mode = Security::Mode;

inline constexpr Duration kPatience = std::chrono::seconds(30);

inline Token TokenOf(char secret) {
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
  static bool Protected() { return GetParam() != Mode::kPlain; }

  // Whether a member can still join and move bytes both ways.
  void ExpectOpenForMembers(Member& server, const Address& address) {
    Member client(Options());
    Peer near = client.Connect(address);
    Peer far = server.Accepted();
    ExpectMoves(near, far, 100'000);
    ExpectMoves(far, near, 100'000);
  }

  static void ExpectMoves(Peer& from, Peer& to, std::size_t bytes) {
    const ByteBuffer sent = RandomBytes(bytes, 1);
    ByteBuffer received(sent.size());
    std::future<Status> written = from.StartWrite({sent});
    EXPECT_TRUE(to.Read(received).status.ok());
    EXPECT_TRUE(written.get().ok());
    EXPECT_EQ(received, sent);
  }
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_TEST_PEERS_H_
