// SPDX-License-Identifier: Apache-2.0
// Members that freeze, hosts that vanish, goodbyes: in virtual time, where bounds are exact.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/job.h"

namespace poseidon::integration {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;

JobOptions SmallJob(std::uint16_t workers, std::uint16_t servers) {
  JobOptions options;
  options.workers = workers;
  options.servers = servers;
  options.layers = InForwardOrder({Dense("a", 5000), FullyConnected("b", 20, 30)});
  options.steps = 1'000'000;
  // Compute that takes its time, so that the job is still at it when the test is over.
  options.max_compute = milliseconds(40);
  options.node.probe_bytes = 0;
  return options;
}

std::unique_ptr<VirtualWorld> MakeWorld(std::uint64_t seed) {
  VirtualOptions options;
  options.simulation = {.seed = seed, .max_jitter = std::chrono::microseconds(50)};
  options.network.seed = seed;
  options.network.max_jitter = std::chrono::microseconds(200);
  options.patience = std::chrono::hours(1);
  return std::make_unique<VirtualWorld>(options);
}

// The time that a network and a scheduler may add to a bound.
constexpr Duration kSlack = milliseconds(20);

// A member of the job freezes: everybody else names it, ends before dead_after, and blames it; and so does the frozen one when it wakes up.
void FreezeAndExpectBlame(const JobOptions& options, std::uint16_t victim, std::uint64_t seed) {
  const Duration dead_after = options.node.liveness.dead_after;
  const auto members = static_cast<std::uint16_t>(options.workers + options.servers);
  const auto world = MakeWorld(seed);
  Job job(*world, options);
  job.Start();
  ASSERT_TRUE(world->Await(job.landed(), 5 * members));
  sim::Simulation& simulation = world->simulation();
  simulation.RunFor(milliseconds(137 * static_cast<int>(seed)));  // any phase of the heartbeat
  const TimePoint frozen_at = simulation.now();
  const sim::ProcessId process = VirtualWorld::ProcessOf(job.site(MemberId(victim)));
  simulation.Pause(process);
  simulation.RunUntil(frozen_at + dead_after + kSlack);
  const std::string name =
      victim >= options.workers ? "server " + std::to_string(victim - options.workers) : "worker " + std::to_string(victim);
  for (std::uint16_t m = 0; m < members; ++m) {
    if (m == victim) continue;
    const Outcome& outcome = job.outcome(MemberId(m));
    EXPECT_EQ(outcome.failures_told, 1) << "member " << m;
    EXPECT_EQ(outcome.failure.culprit(), victim) << outcome.failure.ToString();
    EXPECT_THAT(outcome.failure.message(), HasSubstr(name));
    EXPECT_LE(outcome.ended_at - frozen_at, dead_after + kSlack);
    // Not too early either: a pause of a few seconds is no death.
    EXPECT_GE(outcome.ended_at - frozen_at, dead_after - milliseconds(1100));
    EXPECT_THAT(outcome.log, Contains(HasSubstr(name))) << "member " << m;
  }
  simulation.Resume(process);
  ASSERT_TRUE(job.AwaitEnd());
  job.ExpectAllBlame(victim == 0 ? job.outcome(MemberId(0)).failure.culprit() : victim);
}

TEST(Silence, AFrozenMemberIsNamedAndEndsTheJobInTime) {
  for (const int dead_after : {5, 30}) {
    for (std::uint16_t victim = 0; victim < 4; ++victim) {
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        SCOPED_TRACE("dead_after " + std::to_string(dead_after) + ", victim " +
                     std::to_string(victim) + ", seed " + std::to_string(seed));
        JobOptions options = SmallJob(3, 1);
        options.node.liveness.dead_after = seconds(dead_after);
        FreezeAndExpectBlame(options, victim, seed);
      }
    }
  }
}

// Of 12 members each watches seven or eight others, and hears of the rest.
TEST(Silence, AFrozenMemberIsNamedAlsoByThoseThatDoNotWatchIt) {
  for (const std::uint16_t victim : std::to_array<std::uint16_t>({0, 5, 11})) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      SCOPED_TRACE("victim " + std::to_string(victim) + ", seed " + std::to_string(seed));
      JobOptions options = SmallJob(11, 1);
      options.node.liveness.dead_after = seconds(5);
      options.node.liveness.most_in_pairs = 8;
      FreezeAndExpectBlame(options, victim, seed);
    }
  }
}

// A pause that is shorter than dead_after ends nothing, and nothing is lost.
TEST(Silence, AShortPauseIsForgiven) {
  for (std::uint16_t victim = 0; victim < 4; ++victim) {
    SCOPED_TRACE(victim);
    const auto world = MakeWorld(victim);
    JobOptions options = SmallJob(3, 1);
    options.steps = 60;
    Job job(*world, options);
    job.Start();
    ASSERT_TRUE(world->Await(job.landed(), 20));
    sim::Simulation& simulation = world->simulation();
    const sim::ProcessId process = VirtualWorld::ProcessOf(job.site(MemberId(victim)));
    simulation.Pause(process);
    simulation.RunFor(seconds(20));
    simulation.Resume(process);
    ASSERT_TRUE(job.AwaitEnd());
    job.ExpectAllWell();
  }
}

// Four seconds of silence are named on the way, and its end is, too.
TEST(Silence, APauseIsNamedAndThenHeardAgain) {
  const auto world = MakeWorld(9);
  JobOptions options = SmallJob(3, 0);
  options.steps = 60;
  Job job(*world, options);
  job.Start();
  ASSERT_TRUE(world->Await(job.landed(), 20));
  const sim::ProcessId process = VirtualWorld::ProcessOf(job.site(MemberId(1)));
  world->simulation().Pause(process);
  world->simulation().RunFor(seconds(10));
  world->simulation().Resume(process);
  ASSERT_TRUE(job.AwaitEnd());
  job.ExpectAllWell();
  for (const std::uint16_t m : {std::uint16_t{0}, std::uint16_t{2}}) {
    EXPECT_THAT(job.outcome(MemberId(m)).log,
                Contains(AllOf(HasSubstr("worker 1"), HasSubstr("silent"))));
    EXPECT_THAT(job.outcome(MemberId(m)).log,
                Contains(AllOf(HasSubstr("worker 1"), HasSubstr("heard again"))));
  }
}

// A host that is cut off without a reset: no connection reports an error, only silence is left.
TEST(Silence, AVanishedHostIsBlamedByTheOthers) {
  for (std::uint16_t victim = 0; victim < 3; ++victim) {
    SCOPED_TRACE(victim);
    const auto world = MakeWorld(victim + 20u);
    Job job(*world, SmallJob(3, 0));
    job.Start();
    ASSERT_TRUE(world->Await(job.landed(), 20));
    const TimePoint gone_at = world->simulation().now();
    world->network().Vanish(VirtualWorld::HostOf(job.site(MemberId(victim))));
    world->simulation().RunUntil(gone_at + seconds(30) + kSlack);
    for (std::uint16_t m = 0; m < 3; ++m) {
      if (m == victim) continue;
      const Outcome& outcome = job.outcome(MemberId(m));
      EXPECT_EQ(outcome.failures_told, 1) << "member " << m;
      EXPECT_EQ(outcome.failure.culprit(), victim) << outcome.failure.ToString();
    }
    ASSERT_TRUE(job.AwaitEnd());
  }
}

TEST(Silence, AKilledMemberIsNamedWithinASecond) {
  for (std::uint16_t victim = 0; victim < 4; ++victim) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE("victim " + std::to_string(victim) + ", seed " + std::to_string(seed));
      const auto world = MakeWorld(seed);
      Job job(*world, SmallJob(3, 1));
      job.Start();
      ASSERT_TRUE(world->Await(job.landed(), 20 + seed));
      world->simulation().RunFor(std::chrono::microseconds(777 * seed));
      const TimePoint killed_at = world->simulation().now();
      job.Kill(MemberId(victim));
      ASSERT_TRUE(job.AwaitEnd());
      job.ExpectAllBlame(victim);
      for (std::uint16_t m = 0; m < 4; ++m) {
        if (m == victim) continue;
        EXPECT_LE(job.outcome(MemberId(m)).ended_at - killed_at, seconds(1));
      }
    }
  }
}

// A connection that is reset between two members that both live. Whoever loses the coordinator
// cannot hear its verdict and blames it; all others agree.
TEST(Silence, AResetBlamesOneOfItsEndsTheSameEverywhere) {
  for (const auto& [from, to] : std::vector<std::pair<std::uint16_t, std::uint16_t>>{
           {0, 1}, {1, 2}, {2, 0}, {1, 3}, {3, 2}}) {
    SCOPED_TRACE(std::to_string(from) + " to " + std::to_string(to));
    const auto world = MakeWorld(from * 10u + to);
    Job job(*world, SmallJob(3, 1));
    job.Start();
    ASSERT_TRUE(world->Await(job.landed(), 20));
    world->network().ResetAfter({VirtualWorld::HostOf(job.site(MemberId(from))),
                                 VirtualWorld::HostOf(job.site(MemberId(to))), 1});
    ASSERT_TRUE(job.AwaitEnd());
    const std::int32_t culprit = job.outcome(MemberId(0)).failure.culprit();
    EXPECT_THAT(culprit, AnyOf(from, to));
    for (std::uint16_t m = 0; m < 4; ++m) {
      EXPECT_THAT(job.outcome(MemberId(m)).failure.message(), HasSubstr("the connection was reset"));
    }
    for (std::uint16_t m = 0; m < 4; ++m) {
      const Status& failure = job.outcome(MemberId(m)).failure;
      const bool lost_coordinator = std::min(from, to) == 0 && m == std::max(from, to);
      EXPECT_EQ(failure.culprit(), lost_coordinator ? 0 : culprit) << failure.ToString();
    }
  }
}

// What a member sends is changed on its way. Its connection is closed, and all say why, also the one that sent
// it: it lives, and reads the other's last message.
TEST(Silence, WhatAMemberRefusesIsTheReasonThatAllGive) {
  for (const auto& [from, to] : std::vector<std::pair<std::uint16_t, std::uint16_t>>{
           {0, 1}, {1, 0}, {1, 2}, {2, 1}, {3, 0}, {0, 3}, {1, 3}}) {
    SCOPED_TRACE(std::to_string(from) + " to " + std::to_string(to));
    const auto world = MakeWorld(from * 10u + to);
    Job job(*world, SmallJob(3, 1));
    job.Start();
    ASSERT_TRUE(world->Await(job.landed(), 20));
    const TimePoint damaged_at = world->simulation().now();
    world->network().DamageNext(VirtualWorld::HostOf(job.site(MemberId(from))),
                              VirtualWorld::HostOf(job.site(MemberId(to))));
    ASSERT_TRUE(job.AwaitEnd());
    const auto name = [](std::uint16_t m) {
      return m == 3 ? std::string("server 0") : "worker " + std::to_string(m);
    };
    for (std::uint16_t m = 0; m < 4; ++m) {
      const Outcome& outcome = job.outcome(MemberId(m));
      EXPECT_EQ(outcome.failure.culprit(), from) << outcome.failure.ToString();
      EXPECT_THAT(outcome.failure.message(), HasSubstr(name(to)));
      EXPECT_THAT(outcome.failure.message(), HasSubstr("closed its connection to " + name(from)));
      EXPECT_THAT(outcome.failure.message(), HasSubstr("changed on their way"));
      EXPECT_LE(outcome.ended_at - damaged_at, seconds(2));
    }
  }
}

// Not everybody comes: those who did learn in time who did not.
TEST(Joining, WhoIsMissingIsNamedToThoseWhoCame) {
  const auto world = MakeWorld(3);
  JobOptions options = SmallJob(3, 0);
  options.node.join_timeout = seconds(15);
  Job job(*world, options);
  job.Start();
  job.Kill(MemberId(2));  // before it has joined
  ASSERT_TRUE(job.AwaitEnd());
  for (const std::uint16_t m : {std::uint16_t{0}, std::uint16_t{1}}) {
    const Outcome& outcome = job.outcome(MemberId(m));
    EXPECT_FALSE(outcome.ended.ok());
    EXPECT_THAT(outcome.failure.message(), HasSubstr("2 of 3 workers")) << "member " << m;
    EXPECT_LE(outcome.ended_at.since_origin, seconds(16));
  }
}

// A process that dies while the job forms: at any moment of it, everybody ends, and nobody hangs.
TEST(Joining, ADeathWhileTheJobFormsEndsIt) {
  for (std::uint16_t victim = 0; victim < 4; ++victim) {
    for (int moment = 0; moment < 40; ++moment) {
      SCOPED_TRACE("victim " + std::to_string(victim) + ", moment " + std::to_string(moment));
      const auto world = MakeWorld(7);
      JobOptions options = SmallJob(3, 1);
      options.node.join_timeout = seconds(10);
      Job job(*world, options);
      job.Start();
      world->simulation().RunFor(std::chrono::microseconds(50 * moment));
      job.Kill(MemberId(victim));
      ASSERT_TRUE(job.AwaitEnd());
      for (std::uint16_t m = 0; m < 4; ++m) {
        if (m == victim) continue;
        const Outcome& outcome = job.outcome(MemberId(m));
        EXPECT_FALSE(outcome.ended.ok()) << "member " << m;
        EXPECT_EQ(outcome.failures_told, 1) << "member " << m;
        EXPECT_LE(outcome.ended_at.since_origin, seconds(21));
        // Whoever is blamed, it is not one that lives.
        EXPECT_THAT(outcome.failure.culprit(), AnyOf(victim, kNoCulprit))
            << "member " << m << ": " << outcome.failure.ToString();
      }
    }
  }
}

// The end of a job: the first to learn of it may be gone when the last does.
TEST(Leaving, IsCleanWhateverTheDelays) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const auto world = MakeWorld(seed);
    JobOptions options =
        SmallJob(static_cast<std::uint16_t>(1 + seed % 5), static_cast<std::uint16_t>(seed % 3));
    options.steps = 3;
    Job job(*world, options);
    job.Start();
    for (std::uint16_t m = 0; m < job.members(); ++m) {
      for (std::uint16_t n = 0; n < m; ++n) {
        world->network().SetLatency(VirtualWorld::HostOf(job.site(MemberId(m))),
                                    VirtualWorld::HostOf(job.site(MemberId(n))),
                                    milliseconds((seed * 31 + m * 7 + n * 13) % 80));
      }
    }
    ASSERT_TRUE(job.AwaitEnd());
    job.ExpectAllWell();
  }
}

}  // namespace
}  // namespace poseidon::integration
