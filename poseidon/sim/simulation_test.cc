// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sim/simulation.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

namespace poseidon::sim {
namespace {

using std::chrono::milliseconds;

TimePoint At(Duration since_origin) { return {since_origin}; }

struct Course {
  std::string order;
  std::uint64_t hash = 0;
  std::uint64_t events = 0;
};

// Four executors, each of which runs a chain of tasks; returns the order in which they came.
Course RunChains(SimulationOptions options) {
  Simulation simulation(options);
  Course course;
  std::vector<std::unique_ptr<Executor>> executors;
  std::function<void(std::size_t, int)> chain = [&](std::size_t who, int left) {
    course.order.push_back(static_cast<char>('a' + who));
    if (left > 0) executors[who]->Post([&chain, who, left] { chain(who, left - 1); });
  };
  for (std::size_t who = 0; who < 4; ++who) {
    executors.push_back(simulation.MakeExecutor(simulation.AddProcess("p")));
    executors.back()->Post([&chain, who] { chain(who, 10); });
  }
  simulation.Run();
  course.hash = simulation.hash();
  course.events = simulation.events();
  return course;
}

TEST(Simulation, RunsByTimeThenArrivalWithoutJitter) {
  const Course course = RunChains({.seed = 7});
  std::string expected;
  for (int round = 0; round <= 10; ++round) expected += "abcd";
  EXPECT_EQ(course.order, expected);
  EXPECT_EQ(course.events, 44u);
}

TEST(Simulation, TheSeedAloneDecidesTheCourse) {
  const SimulationOptions first{.seed = 1, .max_jitter = milliseconds(1)};
  const SimulationOptions second{.seed = 2, .max_jitter = milliseconds(1)};
  EXPECT_EQ(RunChains(first).order, RunChains(first).order);
  EXPECT_EQ(RunChains(first).hash, RunChains(first).hash);
  EXPECT_NE(RunChains(first).order, RunChains(second).order);
  EXPECT_NE(RunChains(first).hash, RunChains(second).hash);
}

TEST(Simulation, TimeJumpsToTheNextTask) {
  Simulation simulation;
  const auto executor = simulation.MakeExecutor(simulation.AddProcess("p"));
  std::vector<TimePoint> times;
  executor->PostAfter(std::chrono::hours(5), [&] { times.push_back(executor->now()); });
  executor->PostAfter(milliseconds(3), [&] { times.push_back(executor->now()); });
  simulation.RunUntil(At(milliseconds(2)));
  EXPECT_TRUE(times.empty());
  EXPECT_EQ(simulation.now(), At(milliseconds(2)));
  simulation.RunFor(milliseconds(1));
  EXPECT_EQ(times.size(), 1u);
  simulation.Run();
  EXPECT_EQ(times, (std::vector<TimePoint>{At(milliseconds(3)), At(std::chrono::hours(5))}));
}

TEST(Simulation, RunUntilAPredicateStopsThereOrAtTheLimit) {
  Simulation simulation;
  const auto executor = simulation.MakeExecutor(simulation.AddProcess("p"));
  int beats = 0;
  std::function<void()> beat = [&] {
    ++beats;
    executor->PostAfter(milliseconds(10), [&] { beat(); });
  };
  executor->Post([&] { beat(); });
  EXPECT_TRUE(simulation.RunUntil([&] { return beats == 5; }, std::chrono::seconds(1)));
  EXPECT_EQ(simulation.now(), At(milliseconds(40)));
  EXPECT_FALSE(simulation.RunUntil([&] { return beats == 1000; }, milliseconds(65)));
  EXPECT_EQ(simulation.now(), At(milliseconds(105)));
  EXPECT_EQ(beats, 11);
}

TEST(Simulation, KillDropsAllOfOneProcess) {
  Simulation simulation;
  const ProcessId dies = simulation.AddProcess("dies");
  const auto first = simulation.MakeExecutor(dies);
  const auto second = simulation.MakeExecutor(dies);
  const auto other = simulation.MakeExecutor(simulation.AddProcess("lives"));
  const auto owned = std::make_shared<int>(0);
  std::string order;
  simulation.AtKill(dies, [&] {
    EXPECT_FALSE(simulation.alive(dies));
    EXPECT_EQ(owned.use_count(), 3);  // the tasks die after the observers
    order.push_back('k');
  });
  first->Post([&, owned] { order.push_back('x'); });
  second->PostAfter(milliseconds(1), [&, owned] { order.push_back('x'); });
  other->PostAfter(milliseconds(2), [&] { order.push_back('o'); });
  simulation.Kill(dies);
  EXPECT_EQ(owned.use_count(), 1);
  first->Post([&, owned] { order.push_back('x'); });
  second->PostAfter(milliseconds(0), [&, owned] { order.push_back('x'); });
  EXPECT_EQ(owned.use_count(), 1);
  simulation.Kill(dies);
  simulation.Run();
  EXPECT_EQ(order, "ko");
}

TEST(Simulation, ATaskMayKillItsOwnProcess) {
  Simulation simulation;
  const ProcessId process = simulation.AddProcess("p");
  const auto executor = simulation.MakeExecutor(process);
  std::string order;
  executor->Post([&] {
    simulation.Kill(process);
    EXPECT_TRUE(executor->OnExecutor());
    order.push_back('a');
  });
  executor->Post([&] { order.push_back('b'); });
  simulation.Run();
  EXPECT_EQ(order, "a");
}

TEST(Simulation, APausedProcessWaitsAndCatchesUp) {
  Simulation simulation;
  const ProcessId frozen = simulation.AddProcess("frozen");
  const auto executor = simulation.MakeExecutor(frozen);
  const auto other = simulation.MakeExecutor(simulation.AddProcess("other"));
  std::vector<std::int64_t> seen;
  const auto note = [&](Executor& on) {
    seen.push_back(on.now().since_origin / milliseconds(1));
  };
  executor->PostAfter(milliseconds(1), [&] { note(*executor); });
  executor->PostAfter(milliseconds(30), [&] { note(*executor); });
  other->PostAfter(milliseconds(5), [&] { note(*other); });
  simulation.Pause(frozen);
  executor->Post([&] { note(*executor); });
  simulation.RunFor(milliseconds(20));
  EXPECT_EQ(seen, (std::vector<std::int64_t>{5}));
  simulation.Resume(frozen);
  simulation.Run();
  EXPECT_EQ(seen, (std::vector<std::int64_t>{5, 20, 20, 30}));
}

TEST(Simulation, ExemptExecutorsKeepTheirTimes) {
  Simulation simulation({.seed = 3, .max_jitter = std::chrono::seconds(1)});
  const auto exact = simulation.MakeExecutor(simulation.AddProcess("kernel"), /*jitter=*/false);
  for (int i = 0; i < 20; ++i) {
    exact->PostAfter(milliseconds(i), [&, i] { EXPECT_EQ(exact->now(), At(milliseconds(i))); });
  }
  simulation.Run();
}

TEST(Simulation, ATaskThatSpendsTimeKeepsItsExecutorBusyAndWhatItPostsWaits) {
  Simulation simulation;
  const ProcessId process = simulation.AddProcess("p");
  const auto busy = simulation.MakeExecutor(process);
  const auto other = simulation.MakeExecutor(process);
  std::string course;
  const auto note = [&](const char* what) {
    course += what + std::to_string(simulation.now().since_origin / milliseconds(1)) + " ";
  };
  busy->Post([&] {
    other->Post([&] { note("before"); });
    simulation.Spend(milliseconds(4));
    simulation.Spend(milliseconds(1));
    EXPECT_EQ(busy->now(), At(milliseconds(5)));
    other->Post([&] { note("result"); });
    other->PostAfter(milliseconds(2), [&] { note("later"); });
  });
  busy->Post([&] { note("next"); });
  other->PostAfter(milliseconds(3), [&] {
    note("meanwhile");
    other->Post([&] { note("and"); });
  });
  simulation.Run();
  EXPECT_EQ(course, "before0 meanwhile3 and3 next5 result5 later7 ");
}

TEST(Simulation, WhatATaskPostsToItselfWaitsForTheTimeItSpends) {
  Simulation simulation;
  const auto busy = simulation.MakeExecutor(simulation.AddProcess("p"));
  std::vector<TimePoint> seen;
  const auto note = [&] { seen.push_back(simulation.now()); };
  busy->Post([&] {
    busy->Post(note);
    simulation.Spend(milliseconds(5));
    busy->PostAfter(milliseconds(1), note);
  });
  simulation.Run();
  EXPECT_EQ(seen, (std::vector<TimePoint>{At(milliseconds(5)), At(milliseconds(6))}));
}

TEST(Simulation, AKillDropsAllTasksAlsoWhereTheyOwnExecutors) {
  Simulation simulation;
  const ProcessId process = simulation.AddProcess("p");
  auto first = simulation.MakeExecutor(process);
  const auto second = simulation.MakeExecutor(process);
  const auto third = simulation.MakeExecutor(process);
  bool ran = false;
  second->Post([owned = std::shared_ptr<Executor>(std::move(first))] {});
  third->Post([&] { ran = true; });
  simulation.Kill(process);
  simulation.Run();
  EXPECT_FALSE(ran);
}

TEST(Simulation, AVisitCountsAsATaskOfItsExecutor) {
  Simulation simulation;
  const ProcessId process = simulation.AddProcess("p");
  const auto first = simulation.MakeExecutor(process);
  const auto second = simulation.MakeExecutor(process);
  {
    const Visit outer(simulation, *first);
    EXPECT_TRUE(first->OnExecutor());
    {
      const Visit inner(simulation, *second);
      EXPECT_TRUE(second->OnExecutor());
      EXPECT_FALSE(first->OnExecutor());
    }
    EXPECT_TRUE(first->OnExecutor());
    bool elsewhere = true;
    std::thread([&] { elsewhere = first->OnExecutor(); }).join();
    EXPECT_FALSE(elsewhere);
  }
  EXPECT_FALSE(first->OnExecutor());
  EXPECT_EQ(simulation.events(), 0u);
}

#ifdef POSEIDON_THREAD_CHECKS
TEST(SimulationDeathTest, ATaskOfOneExecutorMustNotEnterWhatLivesOnAnother) {
  Simulation simulation;
  const ProcessId process = simulation.AddProcess("p");
  const auto first = simulation.MakeExecutor(process);
  const auto second = simulation.MakeExecutor(process);
  int entered = 0;
  const auto enter = [&](const Executor& home) {
    POSEIDON_ASSERT_ON(home);
    ++entered;
  };
  first->Post([&] { enter(*first); });
  simulation.Run();
  EXPECT_EQ(entered, 1);
  EXPECT_DEATH(
      {
        first->Post([&] { enter(*second); });
        simulation.Run();
      },
      "outside a task of its executor \\(home\\)");
}
#endif

TEST(SimulationDeathTest, OutlivesItsExecutors) {
  EXPECT_DEATH(
      {
        auto simulation = std::make_unique<Simulation>();
        const auto executor = simulation->MakeExecutor(simulation->AddProcess("p"));
        simulation.reset();
      },
      "outlives its executors");
}

}  // namespace
}  // namespace poseidon::sim
