// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/io_executor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "poseidon/transport/tcp/descriptor.h"

namespace poseidon::transport::tcp {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

// Runs `task` on the executor and waits for it.
template <typename F>
void RunOn(Executor& executor, F task) {
  std::promise<void> ran;
  executor.Post([&] {
    task();
    ran.set_value();
  });
  ran.get_future().wait();
}

struct Pipe {
  Pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) std::abort();
    reader = UniqueFd(fds[0]);
    writer = UniqueFd(fds[1]);
  }
  UniqueFd reader;
  UniqueFd writer;
};

TEST(IoExecutor, RunsTasksInTheOrderTheyWerePosted) {
  IoExecutor executor;
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) executor.Post([&order, i] { order.push_back(i); });
  RunOn(executor, [] {});
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

// A task posted by the executor's own thread keeps its place before one that another thread posts
// after it.
TEST(IoExecutor, KeepsTheOrderAcrossThreads) {
  IoExecutor executor;
  for (int round = 0; round < 100; ++round) {
    std::vector<int> order;
    std::promise<void> inner_posted;
    std::promise<void> outer_posted;
    std::promise<void> done;
    executor.Post([&] {
      executor.Post([&] { order.push_back(1); });
      inner_posted.set_value();
      outer_posted.get_future().wait();
    });
    inner_posted.get_future().wait();
    executor.Post([&] {
      order.push_back(2);
      done.set_value();
    });
    outer_posted.set_value();
    done.get_future().wait();
    ASSERT_THAT(order, testing::ElementsAre(1, 2));
  }
}

TEST(IoExecutor, NeverRunsATaskInsideTheCallThatPostedIt) {
  IoExecutor executor;
  bool posting = false;
  bool ran_inside = false;
  RunOn(executor, [&] {
    posting = true;
    executor.Post([&] { ran_inside |= posting; });
    executor.PostAfter(Duration::zero(), [&] { ran_inside |= posting; });
    posting = false;
  });
  RunOn(executor, [] {});
  EXPECT_FALSE(ran_inside);
}

TEST(IoExecutor, KnowsItsOwnThread) {
  IoExecutor executor;
  EXPECT_FALSE(executor.OnExecutor());
  bool inside = false;
  RunOn(executor, [&] { inside = executor.OnExecutor(); });
  EXPECT_TRUE(inside);
}

TEST(IoExecutor, RunsTimersInTheOrderOfTheirTimes) {
  IoExecutor executor;
  std::vector<int> order;
  std::promise<void> done;
  RunOn(executor, [&] {
    executor.PostAfter(milliseconds(30), [&] {
      order.push_back(3);
      done.set_value();
    });
    executor.PostAfter(milliseconds(10), [&] { order.push_back(1); });
    executor.PostAfter(milliseconds(20), [&] { order.push_back(2); });
    executor.Post([&] { order.push_back(0); });
  });
  done.get_future().wait();
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3));
}

TEST(IoExecutor, ATimerNeverFiresEarly) {
  IoExecutor executor;
  const TimePoint before = executor.now();
  std::promise<TimePoint> fired;
  executor.PostAfter(milliseconds(15), [&] { fired.set_value(executor.now()); });
  EXPECT_GE(fired.get_future().get() - before, milliseconds(15));
}

TEST(IoExecutor, ACancelledTimerDoesNotRun) {
  IoExecutor executor;
  bool ran = false;
  const TimerId far = executor.PostAfter(hours(1), [&] { ran = true; });
  EXPECT_NE(far, 0u);
  EXPECT_TRUE(executor.Cancel(far));
  EXPECT_FALSE(executor.Cancel(far));
  TimerId due = 0;
  RunOn(executor, [&] {
    due = executor.PostAfter(Duration::zero(), [&] { ran = true; });
    EXPECT_TRUE(executor.Cancel(due));
  });
  RunOn(executor, [] {});
  EXPECT_FALSE(ran);
  std::promise<void> fired;
  const TimerId soon = executor.PostAfter(Duration::zero(), [&] { fired.set_value(); });
  fired.get_future().wait();
  EXPECT_FALSE(executor.Cancel(soon));
}

TEST(IoExecutor, TakesTasksFromManyThreads) {
  IoExecutor executor;
  int count = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        executor.Post([&count] { ++count; });
        if (i % 100 == 0) executor.PostAfter(Duration::zero(), [&count] { ++count; });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  RunOn(executor, [] {});
  RunOn(executor, [] {});
  EXPECT_EQ(count, 4 * 505);
}

TEST(IoExecutor, DropsWhatItHasNotRunOnItsOwnThread) {
  struct Witness {
    Witness(Executor* e, int* d, bool* o) : executor(e), destroyed(d), on_executor(o) {}
    ~Witness() {
      ++*destroyed;
      *on_executor &= executor->OnExecutor();
      executor->Post([] { FAIL() << "posted while the executor was being destroyed"; });
    }
    Executor* executor;
    int* destroyed;
    bool* on_executor;
  };
  int destroyed = 0;
  bool on_executor = true;
  Pipe pipe;
  {
    IoExecutor executor;
    std::promise<void> started;
    std::promise<void> leave;
    executor.PostAfter(
        hours(1), [w = std::make_unique<Witness>(&executor, &destroyed, &on_executor)] { FAIL(); });
    RunOn(executor, [&] {
      std::shared_ptr<Descriptor> reader = *Descriptor::Watch(executor, std::move(pipe.reader));
      // The waiting task owns the descriptor it waits for.
      reader->WhenReadable(
          [reader, w = std::make_unique<Witness>(&executor, &destroyed, &on_executor)] { FAIL(); });
    });
  }
  EXPECT_EQ(destroyed, 2);
  EXPECT_TRUE(on_executor);
}

TEST(Descriptor, RunsTheTaskOnceItIsReady) {
  IoExecutor executor;
  Pipe pipe;
  std::unique_ptr<Descriptor> reader;
  std::promise<char> read;
  RunOn(executor, [&] {
    reader = *Descriptor::Watch(executor, std::move(pipe.reader));
    reader->WhenReadable([&] {
      char c = 0;
      EXPECT_EQ(::read(reader->fd(), &c, 1), 1);
      read.set_value(c);
    });
  });
  ASSERT_EQ(::write(pipe.writer.get(), "x", 1), 1);
  EXPECT_EQ(read.get_future().get(), 'x');
  RunOn(executor, [&] { reader.reset(); });
}

TEST(Descriptor, DroppingItDropsTheWaitingTasks) {
  IoExecutor executor;
  Pipe pipe;
  bool ran = false;
  auto witness = std::make_shared<int>(0);
  RunOn(executor, [&] {
    std::unique_ptr<Descriptor> reader = *Descriptor::Watch(executor, std::move(pipe.reader));
    reader->WhenReadable([&ran, witness] { ran = true; });
  });
  while (witness.use_count() > 1) RunOn(executor, [] {});
  EXPECT_FALSE(ran);
}

// Tasks that keep posting themselves do not keep a ready descriptor waiting, nor the reverse.
TEST(Descriptor, TakesTurnsWithTasks) {
  IoExecutor executor;
  Pipe pipe;
  std::unique_ptr<Descriptor> writer;
  std::atomic<bool> stop = false;
  std::atomic<int> turns = 0;
  std::function<void()> again = [&] {
    ++turns;
    if (!stop) executor.Post([&] { again(); });
  };
  std::promise<void> ready;
  RunOn(executor, [&] {
    again();
    writer = *Descriptor::Watch(executor, std::move(pipe.writer));
    executor.Post([&] { writer->WhenWritable([&] { ready.set_value(); }); });
  });
  ready.get_future().wait();
  stop = true;
  EXPECT_GT(turns, 0);
  RunOn(executor, [&] { writer.reset(); });
}

}  // namespace
}  // namespace poseidon::transport::tcp
