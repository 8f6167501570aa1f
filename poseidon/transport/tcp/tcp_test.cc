// SPDX-License-Identifier: Apache-2.0
// TCP connections between members, over loopback, in each mode.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "poseidon/transport/tcp/descriptor.h"
#include "poseidon/transport/tcp/hello.h"
#include "poseidon/transport/tcp/socket.h"
#include "poseidon/transport/tcp/test_peers.h"

namespace poseidon::transport::tcp {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Modes, Tcp, testing::Values(Mode::kTls, Mode::kAuth, Mode::kPlain),
                         [](const auto& mode) {
                           return mode.param == Mode::kTls ? "Tls" : mode.param == Mode::kAuth ? "Auth" : "Plain";
                         });

// --- between members ---

TEST_P(Tcp, MembersMoveBytes) {
  Member server(Options());
  const Address address = server.Listen();
  EXPECT_EQ(address.host, "127.0.0.1") << "nothing listens beyond loopback unless an option names an address";
  ExpectOpenForMembers(server, address);
  EXPECT_EQ(server.strangers().total(), 0u);
}

TEST_P(Tcp, NamesItsPeer) {
  Member server(Options());
  Member client(Options());
  const Address address = server.Listen();
  Peer near = client.Connect(address);
  Peer far = server.Accepted();
  EXPECT_EQ((*near).peer_name(), address.ToString());
  EXPECT_THAT((*far).peer_name(), testing::StartsWith("127.0.0.1:"));
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
  // Header and tag of the one record.
  EXPECT_EQ(after.wire_bytes_out - before.wire_bytes_out, sent.size() + (Protected() ? 20 : 0));
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
  EXPECT_EQ(up, sent);
  EXPECT_EQ(down, sent);
}

TEST_P(Tcp, ADamagedByteIsFound) {
  if (!Protected()) GTEST_SKIP() << "plain bytes are not protected";
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
  // The other direction is whole, so that the peer can be told.
  EXPECT_TRUE(far.Write(AsBytes("why")).ok());
  EXPECT_TRUE(near.Read(MutableBytes(received).first(3)).status.ok());
}

// Processors without instructions for AES: one of two is enough for the other cipher.
TEST_P(Tcp, MembersAgreeOnACipher) {
  for (const bool server_is_fast : {false, true}) {
    for (const bool client_is_fast : {false, true}) {
      TcpOptions of_server = Options(), of_client = Options();
      of_server.fast_aes = server_is_fast;
      of_client.fast_aes = client_is_fast;
      Member server(of_server);
      Member client(of_client);
      Peer near = client.Connect(server.Listen());
      Peer far = server.Accepted();
      ExpectMoves(near, far, 300'000);
    }
  }
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

// --- limits ---

TEST(DescriptorLimit, IsRaisedAsFarAsNeededAndRefusedBeyondTheHardOne) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto soft = [] {
    rlimit now{};
    ::getrlimit(RLIMIT_NOFILE, &now);
    return now.rlim_cur;
  };
  const rlimit low{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_TRUE(AllowDescriptors(20).ok());
  EXPECT_EQ(soft(), 100u) << "enough";
  EXPECT_TRUE(AllowDescriptors(150).ok());
  EXPECT_GE(soft(), 150u);
  EXPECT_LT(soft(), 250u);
  if (before.rlim_max != RLIM_INFINITY) {
    const Status refused = AllowDescriptors(before.rlim_max);
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(refused.message(), HasSubstr("may open " + std::to_string(before.rlim_max) + " descriptors"));
  }
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
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

TEST(Socket, HasAPaceAndIsFreeOfItAgain) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  const auto pace = [&] {
    std::uint32_t rate = 0;
    socklen_t size = sizeof rate;
    EXPECT_EQ(::getsockopt(socket.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size), 0);
    return rate;
  };
  SetPace(socket.get(), 5e6);
  EXPECT_EQ(pace(), 5'000'000u);
  SetPace(socket.get(), 0);
  EXPECT_EQ(pace(), ~0u) << "no limit";
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

}  // namespace
}  // namespace poseidon::transport::tcp
