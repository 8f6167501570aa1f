// SPDX-License-Identifier: Apache-2.0
// Tests what only the simulated network promises: times, rates and faults. tests/conformance tests
// that it is a transport.
#include "poseidon/sim/virtual_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/sim/byte_queue.h"

namespace poseidon::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using transport::Address;
using transport::Connection;
using transport::Context;
using transport::Listener;

// A process on a host of its own that accepts connections and can count what it reads.
struct Node {
  HostId host;
  ProcessId process;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Context> context;
  std::unique_ptr<Listener> listener;
  std::vector<std::unique_ptr<Connection>> accepted;
  std::vector<std::unique_ptr<Connection>> connected;
  Status connect_status;
};

// What a reader has seen so far.
struct Seen {
  std::size_t bytes = 0;
  std::size_t odd = 0;  // of these, not as they were written
  TimePoint last;
  std::optional<Status> failure;
  ByteBuffer buffer = ByteBuffer(1 << 20);
};

class VirtualNetworkTest : public testing::Test {
 protected:
  void Build(std::size_t count, NetworkOptions options, double rate_out = 0, double rate_in = 0, const TransferCosts& costs = {}) {
    network_ = std::make_unique<VirtualNetwork>(simulation_, options);
    nodes_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      Node& node = nodes_[i];
      const std::string name = "h" + std::to_string(i);
      node.host = network_->AddHost({.name = name, .rate_out = rate_out, .rate_in = rate_in, .costs = costs});
      node.process = simulation_.AddProcess(name);
      node.executor = simulation_.MakeExecutor(node.process);
      node.context = network_->MakeContext(node.host, node.process, *node.executor);
      node.executor->Post([&node, name] {
        auto listener = node.context->Listen(Address{name, 7}, [&node](auto connection) {
          node.accepted.push_back(std::move(connection));
        });
        ASSERT_TRUE(listener.ok());
        node.listener = *std::move(listener);
      });
    }
    simulation_.Run();
  }
  // The connecting end; the accepting end is the last of nodes_[to].accepted.
  Connection* Join(std::size_t from, std::size_t to) {
    StartConnect(from, to, seconds(1));
    simulation_.Run();
    EXPECT_TRUE(nodes_[from].connect_status.ok()) << nodes_[from].connect_status.ToString();
    return nodes_[from].connected.empty() ? nullptr : nodes_[from].connected.back().get();
  }
  void StartConnect(std::size_t from, std::size_t to, Duration timeout) {
    Node& node = nodes_[from];
    node.connect_status = Internal("still connecting");
    node.executor->Post([&node, to, timeout] {
      node.context->Connect({"h" + std::to_string(to), 7}, timeout, [&node](auto result) {
        node.connect_status = result.status();
        if (result.ok()) node.connected.push_back(*std::move(result));
      });
    });
  }
  void Write(std::size_t i, Connection* connection, std::size_t bytes,
             std::optional<Status>* done = nullptr) {
    nodes_[i].executor->Post([connection, bytes, done] {
      auto memory = std::make_shared<ByteBuffer>(bytes, std::byte{1});
      connection->Write(std::array{ConstBytes(*memory)}, [memory, done](Status status) {
        if (done != nullptr) *done = std::move(status);
      });
    });
  }
  // Reads until the connection fails.
  void ReadAll(std::size_t i, Connection* connection, Seen& seen) {
    nodes_[i].executor->Post([this, i, connection, &seen] { ReadMore(i, connection, seen); });
  }

  Duration Elapsed(const Seen& seen, TimePoint begin) { return seen.last - begin; }
  // Sends bytes from the first node to the second on a connection of their own; how long the last one took.
  Duration Stream(std::size_t bytes, Seen& seen) {
    Connection* const connection = Join(0, 1);
    ReadAll(1, nodes_[1].accepted[0].get(), seen);
    const TimePoint begin = simulation_.now();
    Write(0, connection, bytes);
    simulation_.Run();
    return Elapsed(seen, begin);
  }

  Simulation simulation_;
  std::unique_ptr<VirtualNetwork> network_;
  std::vector<Node> nodes_;

 private:
  void ReadMore(std::size_t i, Connection* connection, Seen& seen) {
    connection->Read(std::array{MutableBytes(seen.buffer)}, 1,
                     [this, i, connection, &seen](Status status, std::size_t bytes) {
                       if (!status.ok()) {
                         seen.failure = std::move(status);
                         return;
                       }
                       seen.bytes += bytes;
                       seen.odd += bytes - static_cast<std::size_t>(std::count(
                                               seen.buffer.begin(),
                                               seen.buffer.begin() + static_cast<std::ptrdiff_t>(bytes),
                                               std::byte{1}));
                       seen.last = simulation_.now();
                       ReadMore(i, connection, seen);
                     });
  }
};

TEST_F(VirtualNetworkTest, AStreamTakesItsBytesThroughThePortAndALatency) {
  // 1 MB at 1 MB/s out, in segments of 10 kB; the receiving port has no limit.
  Build(2, {.latency = milliseconds(3), .segment_bytes = 10'000}, 1e6, 0);
  Seen seen;
  const Duration elapsed = Stream(1'000'000, seen);
  EXPECT_EQ(seen.bytes, 1'000'000u);
  EXPECT_EQ(elapsed, seconds(1) + milliseconds(3));
  EXPECT_EQ(network_->traffic(nodes_[0].host).out, 1'000'000u);
  EXPECT_EQ(network_->traffic(nodes_[1].host).in, 1'000'000u);
  EXPECT_EQ(network_->traffic(nodes_[1].host).out, 0u);
}

TEST_F(VirtualNetworkTest, TheReceivingPortAddsItsLastSegment) {
  Build(2, {.latency = milliseconds(3), .segment_bytes = 10'000}, 1e6, 1e6);
  Seen seen;
  const Duration elapsed = Stream(1'000'000, seen);
  // Store and forward: the last segment's 10 ms are passed twice.
  EXPECT_EQ(elapsed, seconds(1) + milliseconds(13));
}

TEST_F(VirtualNetworkTest, ASmallSendBufferCapsTheRateAtOneBufferPerRoundTrip) {
  Build(2, {.latency = milliseconds(10), .send_buffer_bytes = 20'000, .segment_bytes = 20'000}, 1e9);
  Seen seen;
  const Duration elapsed = Stream(200'000, seen);
  // Ten buffers, nine round trips between them; 20 us of port time each.
  EXPECT_EQ(elapsed, milliseconds(9 * 20 + 10) + microseconds(200));
}

TEST_F(VirtualNetworkTest, AConnectionMayLimitWhatItHoldsUndelivered) {
  Build(2, {.latency = milliseconds(10), .segment_bytes = 20'000}, 1e9);
  Connection* const connection = Join(0, 1);
  Seen seen;
  ReadAll(1, nodes_[1].accepted[0].get(), seen);
  nodes_[0].executor->Post([connection] { connection->LimitUndelivered(20'000); });
  simulation_.Run();
  const TimePoint begin = simulation_.now();
  Write(0, connection, 200'000);
  simulation_.Run();
  EXPECT_EQ(Elapsed(seen, begin), milliseconds(9 * 20 + 10) + microseconds(200));
}

TEST_F(VirtualNetworkTest, APacedConnectionSendsEvenlyUntilItIsFree) {
  Build(2, {.latency = milliseconds(10), .segment_bytes = 20'000}, 1e9);
  Connection* const connection = Join(0, 1);
  Seen seen;
  ReadAll(1, nodes_[1].accepted[0].get(), seen);
  nodes_[0].executor->Post([connection] { connection->Pace(1e6); });
  simulation_.Run();
  TimePoint begin = simulation_.now();
  Write(0, connection, 200'000);
  simulation_.Run();
  // Ten segments, one every 20 ms, and the last one's 20 us of port time.
  EXPECT_EQ(Elapsed(seen, begin), milliseconds(9 * 20 + 10) + microseconds(20));
  nodes_[0].executor->Post([connection] { connection->Pace(0); });
  simulation_.Run();
  begin = simulation_.now();
  Write(0, connection, 200'000);
  simulation_.Run();
  EXPECT_EQ(Elapsed(seen, begin), milliseconds(10) + microseconds(200));
}

TEST_F(VirtualNetworkTest, HollowMemoryTakesTimeButIsNotCopied) {
  const ByteBuffer hollow(100'000, std::byte{1});
  Build(2, {.latency = milliseconds(3), .segment_bytes = 10'000, .hollow = hollow}, 1e6, 0);
  Connection* const connection = Join(0, 1);
  Seen seen;
  seen.buffer.assign(200'000, std::byte{7});
  ReadAll(1, nodes_[1].accepted[0].get(), seen);
  const TimePoint begin = simulation_.now();
  const ByteBuffer header(8, std::byte{2});
  nodes_[0].executor->Post([&] {
    connection->Write(
        std::array{ConstBytes(header), ConstBytes(hollow).subspan(50), ConstBytes(header)},
        [](Status) {});
  });
  simulation_.Run();
  EXPECT_EQ(seen.bytes, 8 + 99'950 + 8u);
  EXPECT_EQ(Elapsed(seen, begin), microseconds(99'966) + milliseconds(3));
  // The first read gets the first segment: the header, and behind it nothing was written.
  EXPECT_EQ(seen.buffer[0], std::byte{2});
  EXPECT_EQ(seen.buffer[100], std::byte{7});
}

TEST_F(VirtualNetworkTest, WritingAndReadingTakeTheOwnersTime) {
  const TransferCosts costs{.seconds_per_wake = 1e-6, .seconds_per_byte_out = 1e-9, .seconds_per_byte_in = 3e-9};
  Build(2, {.latency = milliseconds(1)}, 0, 0, costs);
  Seen seen;
  const Duration elapsed = Stream(100'000, seen);
  const HostWork writing = network_->work(nodes_[0].host), reading = network_->work(nodes_[1].host);
  EXPECT_EQ(writing.wakes, 0u);  // it connects at the same moment
  EXPECT_EQ(writing.busy, microseconds(100));
  EXPECT_EQ(reading.wakes, 1u);  // all seven segments arrive before it reads
  EXPECT_EQ(reading.busy, microseconds(1 + 300));
  // It is under way once it is written, and read when all of it is.
  EXPECT_EQ(elapsed, writing.busy + milliseconds(1) + reading.busy);
}

TEST(Cores, WorkWaitsForTheCoreThatIsFreeFirst) {
  Cores cores(2);
  const TimePoint now;
  EXPECT_EQ(cores.Take(now, milliseconds(5)), milliseconds(5));
  EXPECT_EQ(cores.Take(now, milliseconds(2)), milliseconds(2));
  EXPECT_EQ(cores.Take(now + milliseconds(1), milliseconds(4)), milliseconds(1 + 4));
  EXPECT_EQ(cores.Take(now + milliseconds(20), milliseconds(1)), milliseconds(1));
}

TEST_F(VirtualNetworkTest, ConnectionsOfAPortTakeTurns) {
  Build(3, {.latency = microseconds(0), .segment_bytes = 1000}, 1e6, 0);
  Connection* const large = Join(0, 1);
  Connection* const small = Join(0, 2);
  Seen large_seen;
  Seen small_seen;
  ReadAll(1, nodes_[1].accepted[0].get(), large_seen);
  ReadAll(2, nodes_[2].accepted[0].get(), small_seen);
  const TimePoint begin = simulation_.now();
  Write(0, large, 100'000);
  Write(0, small, 10'000);
  simulation_.Run();
  // While both send, each has half the port: the small one is through after twice its time.
  EXPECT_EQ(Elapsed(small_seen, begin), milliseconds(20));
  EXPECT_EQ(Elapsed(large_seen, begin), milliseconds(110));
}

TEST_F(VirtualNetworkTest, ManySendersShareOneReceivingPort) {
  Build(4, {.latency = microseconds(0), .segment_bytes = 1000}, 0, 1e6);
  std::array<Seen, 3> seen;
  for (std::size_t i = 1; i < 4; ++i) Join(i, 0);
  const TimePoint begin = simulation_.now();
  for (std::size_t i = 1; i < 4; ++i) {
    ReadAll(0, nodes_[0].accepted[i - 1].get(), seen[i - 1]);
    Write(i, nodes_[i].connected[0].get(), 50'000);
  }
  simulation_.Run();
  EXPECT_EQ(simulation_.now() - begin, milliseconds(150));
  EXPECT_EQ(seen[0].bytes + seen[1].bytes + seen[2].bytes, 150'000u);
}

TEST_F(VirtualNetworkTest, PiecesOfAFewBytesKeepTheRateOfAFastPort) {
  Build(2, {.latency = microseconds(0), .segment_bytes = 64}, 12.5e9, 12.5e9);
  Seen seen;
  const Duration elapsed = Stream(1'000'000, seen);
  // 80 us for the bytes, a piece's 5.12 ns for the second port; no nanosecond is lost to every piece.
  EXPECT_GE(elapsed, microseconds(80));
  EXPECT_LE(elapsed, microseconds(80) + std::chrono::nanoseconds(20));
}

TEST_F(VirtualNetworkTest, TwoProcessesOfOneHostDoNotUseItsPort) {
  Build(1, {.loopback_latency = microseconds(5)}, 1.0, 1.0);
  const HostId host = nodes_[0].host;
  const ProcessId second = simulation_.AddProcess("second");
  const auto executor = simulation_.MakeExecutor(second);
  const auto context = network_->MakeContext(host, second, *executor);
  std::unique_ptr<Connection> connection;
  executor->Post([&] {
    context->Connect({"h0", 7}, seconds(1), [&](auto result) {
      ASSERT_TRUE(result.ok());
      connection = *std::move(result);
    });
  });
  simulation_.Run();
  Seen seen;
  ReadAll(0, nodes_[0].accepted[0].get(), seen);
  const TimePoint begin = simulation_.now();
  const ByteBuffer bytes(100'000);
  executor->Post([&] { connection->Write(std::array{ConstBytes(bytes)}, [](Status) {}); });
  simulation_.Run();
  EXPECT_EQ(seen.bytes, 100'000u);
  EXPECT_EQ(Elapsed(seen, begin), microseconds(5));
  EXPECT_EQ(network_->traffic(host).out, 0u);
  connection.reset();
}

TEST_F(VirtualNetworkTest, AKilledProcessEndsItsStreamsAfterWhatItHadWritten) {
  Build(2, {.latency = milliseconds(2)}, 1e6, 0);
  Connection* const connection = Join(0, 1);
  Seen seen;
  std::optional<Status> written;
  std::optional<Status> answered;
  ReadAll(1, nodes_[1].accepted[0].get(), seen);
  Write(0, connection, 100'000, &written);
  simulation_.RunFor(milliseconds(1));
  ASSERT_TRUE(written && written->ok());
  simulation_.Kill(nodes_[0].process);
  Write(1, nodes_[1].accepted[0].get(), 10'000'000, &answered);
  simulation_.Run();
  EXPECT_EQ(seen.bytes, 100'000u);
  ASSERT_TRUE(seen.failure);
  EXPECT_EQ(seen.failure->code(), StatusCode::kUnavailable);
  ASSERT_TRUE(answered);
  EXPECT_EQ(answered->code(), StatusCode::kUnavailable);
  // Its listener is gone as well.
  StartConnect(1, 0, milliseconds(50));
  simulation_.Run();
  EXPECT_EQ(nodes_[1].connect_status.code(), StatusCode::kDeadlineExceeded);
}

TEST_F(VirtualNetworkTest, AFrozenProcessTakesItsBuffersWorthAndSaysNothing) {
  Build(2, {.send_buffer_bytes = 10'000, .receive_buffer_bytes = 5'000, .segment_bytes = 1'000});
  Connection* const connection = Join(0, 1);
  Seen seen;
  std::optional<Status> first;
  std::optional<Status> second;
  ReadAll(1, nodes_[1].accepted[0].get(), seen);
  simulation_.Pause(nodes_[1].process);
  Write(0, connection, 15'000, &first);
  simulation_.RunFor(seconds(100));
  EXPECT_TRUE(first && first->ok()) << "both buffers together hold this";
  Write(0, connection, 1, &second);
  simulation_.RunFor(seconds(100));
  EXPECT_FALSE(second);
  EXPECT_EQ(seen.bytes, 0u);
  simulation_.Resume(nodes_[1].process);
  simulation_.Run();
  EXPECT_TRUE(second && second->ok());
  EXPECT_EQ(seen.bytes, 15'001u);
  EXPECT_FALSE(seen.failure);
}

TEST_F(VirtualNetworkTest, AVanishedHostIsSilentUntilItReturns) {
  Build(3, {.latency = milliseconds(1), .segment_bytes = 1'000}, 1e6, 0);
  Connection* const connection = Join(0, 1);
  Seen seen;
  ReadAll(1, nodes_[1].accepted[0].get(), seen);
  Write(0, connection, 100'000);
  simulation_.RunFor(milliseconds(20));
  network_->Vanish(nodes_[1].host);
  StartConnect(2, 1, seconds(2));
  simulation_.RunFor(seconds(10));
  EXPECT_FALSE(seen.failure);
  const std::size_t before = seen.bytes;
  EXPECT_GT(before, 0u);
  EXPECT_LT(before, 30'000u);
  EXPECT_EQ(nodes_[2].connect_status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(nodes_[2].connected.empty());
  network_->Return(nodes_[1].host);
  simulation_.Run();
  EXPECT_EQ(seen.bytes, 100'000u);
  EXPECT_FALSE(seen.failure);
  // The late answer to the connect that was given up leaves an accepted connection that has ended.
  ASSERT_EQ(nodes_[1].accepted.size(), 2u);
  Seen ended;
  ReadAll(1, nodes_[1].accepted[1].get(), ended);
  simulation_.Run();
  EXPECT_TRUE(ended.failure);
}

TEST_F(VirtualNetworkTest, ACutLinkIsSilentInItsDirectionOnly) {
  Build(3, {.latency = milliseconds(1)});
  Connection* const connection = Join(0, 1);
  Connection* const elsewhere = Join(0, 2);
  std::array<Seen, 3> seen;
  ReadAll(0, connection, seen[0]);
  ReadAll(1, nodes_[1].accepted[0].get(), seen[1]);
  ReadAll(2, nodes_[2].accepted[0].get(), seen[2]);
  network_->Cut(nodes_[0].host, nodes_[1].host);
  Write(0, connection, 1'000);
  Write(0, elsewhere, 1'000);
  Write(1, nodes_[1].accepted[0].get(), 1'000);
  simulation_.RunFor(seconds(10));
  EXPECT_EQ(seen[0].bytes, 1'000u);
  EXPECT_EQ(seen[1].bytes, 0u);
  EXPECT_EQ(seen[2].bytes, 1'000u);
  for (const Seen& one : seen) EXPECT_FALSE(one.failure);
}

TEST_F(VirtualNetworkTest, DamagedBytesFailTheirReaderAlone) {
  Build(2, {.segment_bytes = 100});
  Connection* const connection = Join(0, 1);
  Seen seen, other;
  ReadAll(1, nodes_[1].accepted[0].get(), seen);
  ReadAll(0, connection, other);
  Write(0, connection, 1'000);
  simulation_.Run();
  network_->DamageNext(nodes_[0].host, nodes_[1].host);
  Write(0, connection, 1'000);
  simulation_.Run();
  EXPECT_EQ(seen.bytes, 1'000u);
  ASSERT_TRUE(seen.failure);
  EXPECT_EQ(seen.failure->code(), StatusCode::kDataLoss);
  Write(1, nodes_[1].accepted[0].get(), 10);
  simulation_.Run();
  EXPECT_EQ(other.bytes, 10u) << "the reader can say why it ends";
}

TEST_F(VirtualNetworkTest, WhatWaitsAtTheReceivingPortOfAVanishedHostGoesOnWaiting) {
  Build(3, {.latency = microseconds(0), .segment_bytes = 1'000}, 0, 1e6);
  std::array<Seen, 2> seen;
  for (std::size_t i = 0; i < 2; ++i) Join(i + 1, 0);
  for (std::size_t i = 0; i < 2; ++i) {
    ReadAll(0, nodes_[0].accepted[i].get(), seen[i]);
    Write(i + 1, nodes_[i + 1].connected[0].get(), 50'000);
  }
  const auto read = [&] { return seen[0].bytes + seen[1].bytes; };
  simulation_.RunFor(milliseconds(10));
  network_->Vanish(nodes_[0].host);
  const std::size_t before = read();
  EXPECT_LE(before, 11'000u);
  simulation_.RunFor(seconds(1));
  EXPECT_EQ(read(), before);
  network_->Return(nodes_[0].host);
  simulation_.Run();
  EXPECT_EQ(read(), 100'000u);
}

TEST_F(VirtualNetworkTest, ProcessesOfAVanishedHostStillReachEachOther) {
  Build(1, {});
  Connection* const connection = Join(0, 0);
  Seen seen;
  ReadAll(0, nodes_[0].accepted[0].get(), seen);
  network_->Vanish(nodes_[0].host);
  Write(0, connection, 1'000);
  simulation_.Run();
  EXPECT_EQ(seen.bytes, 1'000u);
}

TEST_F(VirtualNetworkTest, AListenerOfAKilledProcessLeavesThePortToTheNext) {
  Build(2, {});
  simulation_.Kill(nodes_[0].process);
  const ProcessId second = simulation_.AddProcess("second");
  const auto executor = simulation_.MakeExecutor(second);
  const auto context = network_->MakeContext(nodes_[0].host, second, *executor);
  std::unique_ptr<Listener> listener;
  executor->Post([&] {
    auto taken = context->Listen(Address{"h0", 7}, [](auto) {});
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    listener = *std::move(taken);
  });
  simulation_.Run();
  nodes_[0].listener.reset();
  Join(1, 0);
  simulation_.Kill(second);
  listener.reset();
}

TEST_F(VirtualNetworkTest, AResetCutsAtItsByte) {
  for (std::uint64_t at : {0u, 1u, 999u, 1000u, 1001u, 54'321u, 100'000u}) {
    SCOPED_TRACE(at);
    nodes_.clear();
    Build(2, {.segment_bytes = 1'000});
    Connection* const connection = Join(0, 1);
    network_->ResetAfter({nodes_[0].host, nodes_[1].host, at});
    Seen seen;
    Seen back;
    ReadAll(1, nodes_[1].accepted[0].get(), seen);
    ReadAll(0, connection, back);
    Write(0, connection, 100'000);
    simulation_.Run();
    EXPECT_EQ(seen.bytes, at);
    EXPECT_TRUE(seen.failure);
    EXPECT_TRUE(back.failure);
    // Once only.
    Connection* const next = Join(0, 1);
    Seen again;
    ReadAll(1, nodes_[1].accepted[1].get(), again);
    Write(0, next, 100'000);
    simulation_.Run();
    EXPECT_EQ(again.bytes, 100'000u);
    nodes_.clear();
  }
}

TEST_F(VirtualNetworkTest, ListensAtItsOwnHostOnly) {
  Build(2, {});
  nodes_[0].executor->Post([&] {
    const auto wrong = nodes_[0].context->Listen(Address{"h1", 9}, [](auto) {});
    EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
  });
  simulation_.Run();
}

std::uint64_t CourseOf(std::uint64_t seed) {
  Simulation simulation({.seed = seed, .max_jitter = microseconds(100)});
  VirtualNetwork network(simulation, {.seed = seed + 1,
                                      .max_jitter = microseconds(300),
                                      .segment_bytes = 500,
                                      .cut = Cut::kRandomSegments});
  const HostId a = network.AddHost({.name = "a", .rate_out = 1e6, .rate_in = 1e6});
  const HostId b = network.AddHost({.name = "b", .rate_out = 1e6, .rate_in = 1e6});
  const ProcessId p = simulation.AddProcess("p");
  const ProcessId q = simulation.AddProcess("q");
  const auto on_a = simulation.MakeExecutor(p);
  const auto on_b = simulation.MakeExecutor(q);
  const auto at_a = network.MakeContext(a, p, *on_a);
  const auto at_b = network.MakeContext(b, q, *on_b);
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Connection> accepted;
  std::unique_ptr<Connection> connected;
  ByteBuffer into(20'000);
  const ByteBuffer from(20'000);
  on_b->Post([&] {
    listener = *at_b->Listen({"b", 1}, [&](auto connection) {
      accepted = std::move(connection);
      accepted->Read(std::array{MutableBytes(into)}, into.size(), [](Status, std::size_t) {});
    });
  });
  on_a->Post([&] {
    at_a->Connect({"b", 1}, seconds(1), [&](auto result) {
      connected = *std::move(result);
      connected->Write(std::array{ConstBytes(from)}, [](Status) {});
    });
  });
  simulation.Run();
  connected.reset();
  accepted.reset();
  listener.reset();
  return simulation.hash();
}

TEST(VirtualNetworkCourse, IsDecidedByTheSeeds) {
  EXPECT_EQ(CourseOf(1), CourseOf(1));
  EXPECT_NE(CourseOf(1), CourseOf(2));
}

TEST(ByteQueue, GivesBackWhatItTookInAnyPieces) {
  ByteQueue queue;
  std::string expected;
  for (char c = 'a'; c < 'h'; ++c) {
    const std::string piece(static_cast<std::size_t>(c - 'a'), c);
    queue.Push(AsBytes(piece));
    expected += piece;
  }
  std::string got;
  for (std::size_t size = 1; !queue.empty(); ++size) {
    got += AsString(queue.Pop(size));
    EXPECT_EQ(queue.size() + got.size(), expected.size());
  }
  EXPECT_EQ(got, expected);
  queue.Push(AsBytes("xyz"));
  queue.Pop(1);
  queue.Clear();
  EXPECT_TRUE(queue.empty());
  queue.Push(AsBytes("1"));
  EXPECT_EQ(AsString(queue.Pop(5)), "1");
}

TEST(ByteQueue, MovesItsFirstBytesToAnother) {
  ByteQueue queue;
  queue.Push(AsBytes("abcd"));
  queue.PushHollow(3);
  queue.Push(AsBytes("ef"));
  ByteQueue first = queue.Take(2);
  first.Push(queue.Take(4));
  EXPECT_EQ(first.size(), 6u);
  EXPECT_EQ(queue.size(), 3u);
  std::string text = "......";
  EXPECT_EQ(first.Pop(MutableBytes(reinterpret_cast<std::byte*>(text.data()), 6)), 6u);
  EXPECT_EQ(text, "abcd..");
  text = "......";
  EXPECT_EQ(queue.Pop(MutableBytes(reinterpret_cast<std::byte*>(text.data()), 6)), 3u);
  EXPECT_EQ(text, ".ef...");
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace poseidon::sim
