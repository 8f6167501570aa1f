// SPDX-License-Identifier: Apache-2.0
// A member that speaks on a raw socket: the hello (mode kPlain), and ends, turns and buffers of the stream after it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/socket.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstddef>
#include <functional>
#include <future>
#include <vector>

#include "poseidon/transport/tcp/hello.h"
#include "poseidon/transport/tcp/stream.h"
#include "poseidon/transport/tcp/test_peers.h"

namespace poseidon::transport::tcp {
namespace {

using testing::HasSubstr;

class TcpPlain : public testing::Test {
 protected:
  static TcpOptions Options() { return {.security = {.mode = Mode::kPlain, .token = TokenOf('a')}}; }
  // What a member's client says in a conversation over `socket`, piece by piece.
  static std::vector<ByteBuffer> Authenticate(const RawSocket& socket, Hello::Nonce nonce = {}) {
    Hello hello(HelloRole::kClient, Key::Derive(TokenOf('a').bytes(), "poseidon hello, plain bytes follow"), {}, nonce);
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

TEST_F(TcpPlain, AReplayedHelloIsRefused) {
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

TEST_F(TcpPlain, AClientThatSpeaksAnotherProtocolIsRefused) {
  Member server(Options());
  const RawSocket browser = RawSocket::ConnectTo(server.Listen());
  browser.Send(
      AsBytes("GET / HTTP/1.1\r\nHost: somewhere\r\nUser-Agent: something\r\n"
              "Accept: text/html\r\n\r\n"));
  EXPECT_EQ(browser.ReceiveAll().size(), Hello::kHeaderBytes);
  EXPECT_EQ(server.strangers().refused, 1u);
}

TEST_F(TcpPlain, APeerThatFinishesWritingCanStillRead) {
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

TEST_F(TcpPlain, AnEndInTheMiddleOfAReadIsAFailure) {
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
TEST_F(TcpPlain, AResetFailsReadsAndWrites) {
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
TEST_F(TcpPlain, BytesThatArrivedBeforeAResetAreRead) {
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
TEST_F(TcpPlain, ABusyPeerLeavesTurnsToOthers) {
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
