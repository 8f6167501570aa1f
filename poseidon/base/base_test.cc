// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "poseidon/base/bytes.h"
#include "poseidon/base/exception.h"
#include "poseidon/base/file.h"
#include "poseidon/base/random.h"
#include "poseidon/base/result.h"
#include "poseidon/base/ring.h"
#include "poseidon/base/status.h"
#include "poseidon/base/strong_id.h"
#include "poseidon/base/task_queue.h"
#include "poseidon/base/unique_function.h"

namespace poseidon {
namespace {

TEST(Status, SaysCodeAndMessage) {
  EXPECT_TRUE(OkStatus().ok());
  EXPECT_EQ(OkStatus().ToString(), "OK");
  const Status status = Unavailable("connection to worker 2 was reset");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.ToString(), "UNAVAILABLE: connection to worker 2 was reset");
  EXPECT_EQ(status.culprit(), kNoCulprit);
}

TEST(Status, PrefixKeepsTheRest) {
  const Status status(StatusCode::kAborted, "worker 3 was killed", StatusScope::kJob, 3);
  const Status longer = status.WithPrefix("train");
  EXPECT_EQ(longer.message(), "train: worker 3 was killed");
  EXPECT_EQ(longer.code(), StatusCode::kAborted);
  EXPECT_EQ(longer.scope(), StatusScope::kJob);
  EXPECT_EQ(longer.culprit(), 3);
  EXPECT_TRUE(OkStatus().WithPrefix("train").ok());
}

TEST(Status, OfAnExceptionIsOneSentence) {
  EXPECT_EQ(ThrownStatus(std::bad_alloc()).ToString(), "RESOURCE_EXHAUSTED: out of memory");
  // As the compute library's allocator says it.
  EXPECT_EQ(ThrownStatus(std::runtime_error("[enforce fail at alloc.cpp:114] err == 0. DefaultCPUAllocator: can't "
                                            "allocate memory: you tried to allocate 4096 bytes. Error code 12"))
                .ToString(),
            "RESOURCE_EXHAUSTED: out of memory: cannot allocate 4096 bytes");
  EXPECT_EQ(ThrownStatus(std::runtime_error("no such operator\nframe #0")).ToString(), "INTERNAL: no such operator");
}

Result<int> Half(int number) {
  if (number % 2 != 0) return InvalidArgument("the number is odd");
  return number / 2;
}
Result<int> Quarter(int number) {
  POSEIDON_ASSIGN_OR_RETURN(const int half, Half(number));
  return Half(half);
}

TEST(Result, CarriesValueOrFailure) {
  ASSERT_TRUE(Quarter(12).ok());
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().code(), StatusCode::kInvalidArgument);
  Result<std::unique_ptr<int>> owned = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = *std::move(owned);
  EXPECT_EQ(*taken, 5);
}

TEST(ResultDeathTest, ValueOfAFailureAborts) {
  Result<int> failed = Half(1);
  EXPECT_DEATH(static_cast<void>(failed.value()), "the number is odd");
}

TEST(UniqueFunction, OwnsMoveOnlyThingsAndFreesThem) {
  auto counted = std::make_shared<int>(0);
  UniqueFunction<int(int)> add = [counted, own = std::make_unique<int>(40)](int x) {
    return *own + x;
  };
  EXPECT_EQ(counted.use_count(), 2);
  UniqueFunction<int(int)> moved = std::move(add);
  EXPECT_FALSE(add);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(moved(2), 42);
  moved = nullptr;
  EXPECT_EQ(counted.use_count(), 1);
}

TEST(UniqueFunction, HoldsWhatIsSmallInPlaceAndAnythingElseToo) {
  struct Counted {
    explicit Counted(int* count) : alive(count) { ++*alive; }
    Counted(Counted&& other) noexcept : alive(other.alive) { ++*alive; }
    Counted(const Counted&) = delete;
    ~Counted() { --*alive; }
    int* alive;
  };
  int alive = 0;
  const auto within = [](const auto& function, const void* at) {
    const auto* const begin = reinterpret_cast<const std::byte*>(&function);
    return at >= begin && at < begin + sizeof function;
  };
  {
    UniqueFunction<const void*()> small = [counted = Counted(&alive)] { return static_cast<const void*>(&counted); };
    EXPECT_TRUE(within(small, small()));
    UniqueFunction<const void*()> moved = std::move(small);
    EXPECT_TRUE(within(moved, moved()));
    EXPECT_EQ(alive, 1);
    UniqueFunction<const void*()> large = [counted = Counted(&alive), more = std::array<char, kInlineBytes>()] {
      static_cast<void>(more);
      return static_cast<const void*>(&counted);
    };
    const void* const at = large();
    EXPECT_FALSE(within(large, at));
    moved = std::move(large);
    EXPECT_EQ(moved(), at);
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Ring, IsAQueueThatGrowsAndComesRound) {
  Ring<std::unique_ptr<int>> ring;
  int in = 0;
  int out = 0;
  for (int turn = 0; turn < 100; ++turn) {
    for (int i = 0; i < turn % 13; ++i) ring.push_back(std::make_unique<int>(in++));
    for (int i = 0; i < turn % 11 && !ring.empty(); ++i) {
      EXPECT_EQ(*ring.front(), out);
      EXPECT_EQ(*ring.Take(), out++);
    }
    EXPECT_EQ(ring.size(), static_cast<std::size_t>(in - out));
  }
  EXPECT_GT(in, 500);
}

// Bit by bit, as the polynomial says.
std::uint32_t CrcByDefinition(ConstBytes bytes) {
  std::uint32_t crc = ~0u;
  for (const std::byte b : bytes) {
    crc ^= std::to_integer<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

TEST(Bytes, CrcOfAnyLengthAndPlaceIsWhatThePolynomialSays) {
  std::string text;
  for (unsigned i = 0; i < 70'000; ++i) text.push_back(static_cast<char>(i * i * 31 + i / 7));
  for (const std::size_t begin : {0, 1, 5}) {
    for (const std::size_t size : {0, 1, 7, 63, 64, 255, 257, 1'023, 4'097, 65'537}) {
      const std::string part = text.substr(begin, size);
      EXPECT_EQ(Crc32c(AsBytes(part)), CrcByDefinition(AsBytes(part))) << begin << ", " << size;
    }
  }
}

TEST(Bytes, HexAndCrc) {
  EXPECT_EQ(ToHex(AsBytes(std::string_view("\x00\x7f\xff", 3))), "007fff");
  // RFC 3720 appendix B.4.
  EXPECT_EQ(Crc32c(AsBytes(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(Crc32c(AsBytes(std::string(32, '\xff'))), 0x62a8ab43u);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising.push_back(c);
  EXPECT_EQ(Crc32c(AsBytes(rising)), 0x46dd794eu);
  const std::string text = "123456789";
  EXPECT_EQ(Crc32c(AsBytes(text)), 0xe3069283u);
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const std::uint32_t first = Crc32c(AsBytes(text.substr(0, cut)));
    EXPECT_EQ(Crc32c(AsBytes(text.substr(cut)), first), 0xe3069283u) << cut;
  }
}

TEST(File, APipeIsReadWhereSomebodyWritesIntoIt) {
  const std::string path = testing::TempDir() + "pipe-" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto refused = OpenToRead(path, std::chrono::seconds(1));
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.status().message(), "cannot read " + path + ": it is a pipe, and nobody has written into it within 1 s");
  std::thread writer([&] {
    const int fd = open(path.c_str(), O_WRONLY);
    EXPECT_EQ(write(fd, "words", 5), 5);
    close(fd);
  });
  const auto file = OpenToRead(path);
  writer.join();
  char read_here[8] = {};
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(read((*file)->fd(), read_here, sizeof read_here), 5);
  EXPECT_EQ(read((*file)->fd(), read_here, sizeof read_here), 0);
  unlink(path.c_str());
  EXPECT_EQ(OpenToRead(path).status().code(), StatusCode::kNotFound);
}

TEST(StrongId, ComparesAndHashes) {
  EXPECT_LT(Step(1), Step(2));
  EXPECT_EQ(Step(1).next(), Step(2));
  EXPECT_EQ(std::hash<Rank>{}(Rank(7)), std::hash<Rank>{}(Rank(7)));
}

TEST(Random, FollowsThePublishedAlgorithm) {
  // SplitMix64's published first outputs for the state 0.
  EXPECT_EQ(Mix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(Mix64(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
  Random a(42);
  Random b(42);
  Random c(43);
  int differ = 0;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t drawn = a();
    EXPECT_EQ(drawn, b());
    differ += drawn != c() ? 1 : 0;
  }
  EXPECT_EQ(differ, 100);
}

TEST(Random, RangesAreFilledAndKept) {
  Random random(1);
  std::array<int, 7> seen{};
  double sum = 0;
  for (int i = 0; i < 7000; ++i) {
    const std::uint64_t drawn = random.Between(3, 9);
    ASSERT_GE(drawn, 3u);
    ASSERT_LE(drawn, 9u);
    ++seen[drawn - 3];
    const double unit = random.Unit();
    ASSERT_GE(unit, 0.0);
    ASSERT_LT(unit, 1.0);
    sum += unit;
  }
  for (int count : seen) EXPECT_NEAR(count, 1000, 200);
  EXPECT_NEAR(sum / 7000, 0.5, 0.02);
}

TEST(TaskQueue, KeepsTimeThenArrival) {
  const auto at = [](int ns) { return TimePoint{Duration(ns)}; };
  std::string order;
  TaskQueue queue;
  queue.PostAt(at(5), 1, [&] { order += 'd'; });
  queue.Post(at(0), 2, [&] { order += 'a'; });
  queue.PostAt(at(3), 3, [&] { order += 'x'; });
  queue.PostAt(at(2), 4, [&] { order += 'b'; });
  queue.Post(at(2), 5, [&] { order += 'c'; });
  queue.Post(at(6), 6, [&] { order += 'e'; });
  EXPECT_TRUE(queue.Cancel(3));
  EXPECT_FALSE(queue.Cancel(3));
  while (queue.Next()) queue.Pop()();
  EXPECT_EQ(order, "abcde");
  EXPECT_FALSE(queue.Cancel(1));
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace poseidon
