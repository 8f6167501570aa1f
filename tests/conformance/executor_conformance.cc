// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/executor_conformance.h"

#include <array>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace poseidon::conformance {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST_P(ExecutorConformance, RunsTasksInTheOrderTheyWerePosted) {
  const auto executor = world_->Make();
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) {
    executor->Post([&, i] {
      order.push_back(i);
      tally_.Add();
    });
  }
  ASSERT_TRUE(Await(1000));
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST_P(ExecutorConformance, NeverRunsATaskInsideTheCallThatTookIt) {
  const auto executor = world_->Make();
  bool inside = false;
  bool nested = false;
  std::function<void(int)> chain = [&](int left) {
    nested = nested || inside;
    inside = true;
    if (left > 0) {
      executor->Post([&chain, left] { chain(left - 1); });
    }
    executor->PostAfter(Duration::zero(), [&] {
      nested = nested || inside;
      tally_.Add();
    });
    inside = false;
  };
  executor->Post([&chain] { chain(999); });
  ASSERT_TRUE(Await(1000));
  EXPECT_FALSE(nested);
}

TEST_P(ExecutorConformance, TimersRunByDeadlineThenArrivalAndNeverEarly) {
  const auto executor = world_->Make();
  std::string order;
  bool early = false;
  const auto after = [&](Duration delay, char mark) {
    const TimePoint due = executor->now() + delay;
    const TimerId id = executor->PostAfter(delay, [&, due, mark] {
      early = early || executor->now() < due;
      order.push_back(mark);
      tally_.Add();
    });
    EXPECT_NE(id, 0u);
  };
  // Set from one task, and far enough apart that the order is the deadlines' even when the machine
  // stalls between two of the calls.
  executor->Post([&] {
    after(milliseconds(40), 'e');
    after(milliseconds(20), 'd');
    after(milliseconds(0), 'a');
    after(milliseconds(0), 'b');
    after(milliseconds(0), 'c');
  });
  ASSERT_TRUE(Await(5));
  EXPECT_EQ(order, "abcde");
  EXPECT_FALSE(early);
}

TEST_P(ExecutorConformance, TimersAndTasksDoNotStarveEachOther) {
  const auto executor = world_->Make();
  bool stop = false;
  int rounds = 0;
  std::function<void()> spin = [&] {
    if (stop) {
      tally_.Add();
      return;
    }
    // Bounded, so that an executor that starves fails this test instead of hanging it.
    if (++rounds > 1'000'000) return;
    executor->PostAfter(Duration::zero(), [&spin] { spin(); });
  };
  executor->Post([&] { spin(); });
  executor->Post([&] {
    executor->Post([&] { stop = true; });
  });
  EXPECT_TRUE(Await(1));
}

TEST_P(ExecutorConformance, CancelledTimersDoNotRunAndFreeWhatTheyOwn) {
  const auto executor = world_->Make();
  const auto owned = std::make_shared<int>(0);
  bool ran = false;
  executor->Post([&] {
    const TimerId far = executor->PostAfter(hours(1), [&ran, owned] { ran = true; });
    const TimerId near = executor->PostAfter(milliseconds(0), [&ran, owned] { ran = true; });
    const TimerId endless = executor->PostAfter(Duration::max(), [&ran, owned] { ran = true; });
    EXPECT_EQ(owned.use_count(), 4);
    EXPECT_TRUE(executor->Cancel(near));
    EXPECT_TRUE(executor->Cancel(far));
    EXPECT_TRUE(executor->Cancel(endless));
    EXPECT_EQ(owned.use_count(), 1);
    EXPECT_FALSE(executor->Cancel(near));
    EXPECT_FALSE(executor->Cancel(0));
    const TimerId runs = executor->PostAfter(milliseconds(0), [&] { tally_.Add(); });
    executor->PostAfter(milliseconds(1), [&, runs] {
      EXPECT_FALSE(executor->Cancel(runs));
      tally_.Add();
    });
  });
  ASSERT_TRUE(Await(2));
  EXPECT_FALSE(ran);
}

TEST_P(ExecutorConformance, AnExpiredTimerCanStillBeCancelledBeforeItRuns) {
  const auto executor = world_->Make();
  bool ran = false;
  TimerId timer = 0;
  executor->Post([&] {
    executor->Post([&] {
      EXPECT_TRUE(executor->Cancel(timer));  // due by now, and next in line
      tally_.Add();
    });
    timer = executor->PostAfter(milliseconds(0), [&] { ran = true; });
    executor->PostAfter(milliseconds(1), [&] { tally_.Add(); });
  });
  ASSERT_TRUE(Await(2));
  EXPECT_FALSE(ran);
}

TEST_P(ExecutorConformance, KnowsWhetherItIsTheOneThatRuns) {
  const auto first = world_->Make();
  const auto second = world_->Make();
  EXPECT_FALSE(first->OnExecutor());
  first->Post([&] {
    EXPECT_TRUE(first->OnExecutor());
    EXPECT_FALSE(second->OnExecutor());
    tally_.Add();
  });
  second->PostAfter(milliseconds(1), [&] {
    EXPECT_TRUE(second->OnExecutor());
    EXPECT_FALSE(first->OnExecutor());
    tally_.Add();
  });
  ASSERT_TRUE(Await(2));
  EXPECT_FALSE(first->OnExecutor());
}

TEST_P(ExecutorConformance, TakesTasksFromOtherThreadsOneAtATime) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 500;
  const auto executor = world_->Make();
  std::array<int, kThreads> last{};
  int running = 0;
  bool ordered = true;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 1; i <= kTasks; ++i) {
        executor->Post([&, t, i] {
          ordered = ordered && ++running == 1 && last[t] == i - 1;
          last[t] = i;
          --running;
          tally_.Add();
        });
        // Timers set and cancelled from elsewhere disturb nobody.
        executor->Cancel(executor->PostAfter(hours(1), [&] { ordered = false; }));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(Await(kThreads * kTasks));
  EXPECT_TRUE(ordered);
}

TEST_P(ExecutorConformance, ExecutorsPostToEachOther) {
  const auto first = world_->Make();
  const auto second = world_->Make();
  int bounces = 0;  // handed back and forth, touched by one side at a time
  std::function<void(Executor*, Executor*)> bounce = [&](Executor* here, Executor* there) {
    EXPECT_TRUE(here->OnExecutor());
    if (++bounces == 200) {
      tally_.Add();
      return;
    }
    there->Post([&bounce, here, there] { bounce(there, here); });
  };
  first->Post([&] { bounce(first.get(), second.get()); });
  ASSERT_TRUE(Await(1));
}

TEST_P(ExecutorConformance, DestructionDropsWhatHasNotRun) {
  struct PostsWhenDropped {
    PostsWhenDropped(Executor* on, bool* ran_flag) : executor(on), ran(ran_flag) {}
    ~PostsWhenDropped() {
      EXPECT_TRUE(executor->OnExecutor());
      bool* const flag = ran;
      executor->Post([flag] { *flag = true; });
      executor->Cancel(executor->PostAfter(Duration::zero(), [flag] { *flag = true; }));
    }
    Executor* executor;
    bool* ran;
  };
  const auto owned = std::make_shared<int>(0);
  bool ran = false;
  auto executor = world_->Make();
  Executor* const raw = executor.get();
  executor->PostAfter(hours(1), [&ran, owned] { ran = true; });
  executor->PostAfter(hours(2), [&ran, owned, last_words = std::make_unique<PostsWhenDropped>(
                                                  raw, &ran)] { ran = true; });
  executor->Post([&] { tally_.Add(); });
  ASSERT_TRUE(Await(1));
  EXPECT_EQ(owned.use_count(), 3);
  executor.reset();
  EXPECT_EQ(owned.use_count(), 1);
  EXPECT_FALSE(ran);
}

TEST_P(ExecutorConformance, TasksAreDestroyedBeforeTheNextOneRuns) {
  const auto executor = world_->Make();
  auto owned = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = owned;
  executor->Post([owned = std::move(owned)] {});
  executor->Post([&] {
    EXPECT_TRUE(watched.expired());
    tally_.Add();
  });
  ASSERT_TRUE(Await(1));
}

}  // namespace
}  // namespace poseidon::conformance
