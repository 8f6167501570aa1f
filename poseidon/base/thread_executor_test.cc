// SPDX-License-Identifier: Apache-2.0
// Tests what only the thread executor promises; tests/conformance tests what every executor promises.
#include "poseidon/base/thread_executor.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "poseidon/base/check.h"

namespace poseidon {
namespace {

TEST(ThreadExecutor, NamesItsThread) {
  ThreadExecutor executor("a name of more than fifteen characters");
  std::promise<std::string> name;
  executor.Post([&name] {
    std::array<char, 32> buffer{};
    pthread_getname_np(pthread_self(), buffer.data(), buffer.size());
    name.set_value(buffer.data());
  });
  EXPECT_EQ(name.get_future().get(), "a name of more ");
}

TEST(ThreadExecutor, TimesOfTwoCompare) {
  ThreadExecutor first("first");
  ThreadExecutor second("second");
  const TimePoint a = first.now();
  const TimePoint b = second.now();
  const TimePoint c = first.now();
  EXPECT_LE(a, b);
  EXPECT_LE(b, c);
}

// The task under way returns, what waits behind it is dropped, and what the dropped ones post from
// their destructors is dropped too.
TEST(ThreadExecutor, DestructionFinishesTheTaskUnderWay) {
  struct PostsWhenDropped {
    PostsWhenDropped(ThreadExecutor* executor, int* run_count, int* drop_count)
        : on(executor), runs(run_count), drops(drop_count) {}
    ~PostsWhenDropped() {
      EXPECT_TRUE(on->OnExecutor());
      ++*drops;
      on->Post([counted = runs] { ++*counted; });
    }
    ThreadExecutor* on;
    int* runs;
    int* drops;
  };
  int runs = 0;
  int drops = 0;
  bool finished = false;
  {
    std::promise<void> started;
    std::promise<void> go_on;
    auto executor = std::make_unique<ThreadExecutor>("test");
    executor->Post([&] {
      started.set_value();
      go_on.get_future().wait();
      finished = true;
    });
    started.get_future().wait();
    executor->Post([&runs, own = std::make_unique<PostsWhenDropped>(executor.get(), &runs, &drops)] {
      ++runs;
    });
    executor->PostAfter(std::chrono::hours(1), [&runs, own = std::make_unique<PostsWhenDropped>(
                                                           executor.get(), &runs, &drops)] {
      ++runs;
    });
    // The destructor has begun when a second thread releases the task; either order is legal, and
    // whichever comes first, both waiting tasks are either run or dropped, never lost.
    std::thread releaser([&go_on] { go_on.set_value(); });
    executor.reset();
    releaser.join();
  }
  EXPECT_TRUE(finished);
  EXPECT_EQ(drops, 2);
  EXPECT_LE(runs, 2);
}

TEST(ThreadExecutorDeathTest, ATaskMustNotDestroyItsExecutor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto* executor = new ThreadExecutor("test");
        std::promise<void> never;
        executor->Post([executor] { delete executor; });
        never.get_future().wait();
      },
      "cannot be destroyed by its own task");
}

#ifdef POSEIDON_THREAD_CHECKS
class Home {
 public:
  explicit Home(Executor& executor) : executor_(executor) {}
  void Enter() {
    POSEIDON_ASSERT_ON(executor_);
    ++entered_;
  }

 private:
  Executor& executor_;
  int entered_ = 0;
};

TEST(ThreadExecutorDeathTest, AnEntryNamesItselfAndItsExecutorWhereItIsCalledOnAnotherThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto enter_from = [](Executor& home, Executor& caller) {
    Home object(home);
    std::promise<void> entered;
    caller.Post([&] {
      object.Enter();
      entered.set_value();
    });
    entered.get_future().wait();
  };
  ThreadExecutor home("home");
  enter_from(home, home);
  EXPECT_DEATH(
      {
        ThreadExecutor own("own");
        ThreadExecutor other("other");
        enter_from(own, other);
      },
      "Home::Enter\\(\\) was called on the thread 'other' outside a task of its executor \\(executor_\\)");
}
#endif

}  // namespace
}  // namespace poseidon
