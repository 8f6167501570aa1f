// SPDX-License-Identifier: Apache-2.0
// Clusters drawn from a seed: sizes, schemes, orders, links, delays, and sometimes a death. Whatever is
// drawn, the same must hold: every contribution counted once, every replica equal to the oracle bit
// for bit, nobody waits for ever, and whoever dies is blamed by all the others.
//
// POSEIDON_SEEDS is how many seeds to run (100), POSEIDON_FIRST_SEED where to begin (1): a failure
// names its seed, and that seed alone repeats it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>

#include "poseidon/base/random.h"
#include "tests/integration/job.h"

namespace poseidon::integration {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;

std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

enum class Fault { kNone, kKill, kFreeze };

// Everything that a seed decides.
struct Cluster {
  VirtualOptions world;
  JobOptions job;
  Fault fault = Fault::kNone;
  std::uint16_t victim = 0;
  std::uint64_t after_means = 0;  // the fault comes once so many results have landed anywhere
  Duration and_then{0};           // and so much later
  std::string words;
};

// Small numbers more often than large ones: the logarithm is uniform.
std::uint64_t Skewed(Random& random, std::uint64_t most) {
  std::uint64_t value = 1 + random.Below(most);
  for (int shrink = static_cast<int>(random.Below(4)); shrink > 0; --shrink) {
    value = 1 + random.Below(value);
  }
  return value;
}

Duration Below(Random& random, Duration most) {
  return Duration(
      static_cast<std::int64_t>(random.Below(static_cast<std::uint64_t>(most.count()) + 1)));
}

void DrawMembers(Random& random, JobOptions& job) {
  job.workers = static_cast<std::uint16_t>(random.Between(1, 6));
  job.servers = static_cast<std::uint16_t>(random.Chance(0.5) ? 0 : random.Between(1, 3));
  // A machine of one's own, or one of up to three that several share.
  const std::uint64_t machines = random.Chance(0.5) ? 0 : random.Between(1, 3);
  for (std::uint16_t w = 0; machines > 0 && w < job.workers; ++w) {
    const auto letter = static_cast<char>('a' + random.Below(machines));
    job.machines.push_back(random.Chance(0.1) ? "" : std::string(1, letter));
  }
  job.node.levels = random.Chance(0.2) ? plan::Levels::kAuto : plan::Levels::kHost;
}

void DrawPlanning(Random& random, bool single_bytes, JobOptions& job) {
  job.steps = single_bytes ? 3 : random.Between(2, 15);
  job.node.final_plan_step = random.Below(job.steps + 3);
  job.node.planning.policy = random.Chance(0.5) ? plan::Policy::kBytes : plan::Policy::kTime;
}

void DrawLayers(Random& random, bool single_bytes, JobOptions& job) {
  const std::uint64_t layers = random.Between(1, single_bytes ? 3 : 10);
  for (std::uint64_t i = 0; i < layers; ++i) {
    const std::string name = "layer" + std::to_string(i);
    const DType dtype = random.Chance(0.3) ? DType::kF64 : DType::kF32;
    const std::uint64_t most = single_bytes ? 20 : random.Chance(0.1) ? 300 : 60;
    if (random.Chance(0.5)) {
      job.layers.push_back(FullyConnected(name, Skewed(random, most), Skewed(random, most),
                                          random.Chance(0.5), dtype));
      if (random.Chance(0.5)) {
        job.node.planning.forced[name] = random.Chance(0.4)   ? plan::Scheme::kFactorBroadcast
                                         : random.Chance(0.5) ? plan::Scheme::kFactorScatter
                                                              : plan::Scheme::kKeyValue;
      }
    } else {
      job.layers.push_back(Dense(name, Skewed(random, most * most), dtype));
    }
    job.layers.back().forward_position = static_cast<std::uint32_t>(i);
  }
  if (random.Chance(0.3)) {  // forward does not run the layers in the order of their declaration
    for (std::uint32_t i = 0; i < job.layers.size(); ++i) {
      std::swap(job.layers[i].forward_position,
                job.layers[random.Below(job.layers.size())].forward_position);
    }
  }
}

void DrawTraining(Random& random, bool single_bytes, JobOptions& job) {
  job.gradients.absent = random.Chance(0.3) ? 0.2 : 0;
  job.gradients.max_rows = static_cast<std::uint32_t>(random.Below(12));
  job.gradients.powers_of_two = random.Chance(0.5);
  job.gradients.weighted = !job.gradients.powers_of_two && random.Chance(0.3);
  job.lockstep = random.Chance(0.5);
  job.max_compute = random.Chance(0.3) ? Duration{0} : Below(random, milliseconds(20));
  job.collective_elements = single_bytes ? 10 : Skewed(random, 20'000);
  job.node.probe_bytes = random.Chance(0.5) ? 0 : Skewed(random, single_bytes ? 100 : 100'000);
  job.node.liveness.dead_after = random.Chance(0.5) ? seconds(5) : seconds(30);
}

void DrawWorld(Random& random, bool single_bytes, std::uint64_t largest_layer, VirtualOptions& world) {
  world.rate = random.Chance(0.2) ? 0 : 1e6 * static_cast<double>(Skewed(random, 1000));
  // Sockets hold what the link moves in ten milliseconds.
  const auto window = static_cast<std::uint64_t>(world.rate == 0 ? 262'144 : world.rate / 100);
  world.network.send_buffer_bytes = std::clamp<std::uint64_t>(window, 2'000, 262'144);
  world.network.receive_buffer_bytes = world.network.send_buffer_bytes;
  world.network.latency = Below(random, random.Chance(0.2) ? milliseconds(20) : milliseconds(1));
  world.network.max_jitter = random.Chance(0.3) ? Duration{0} : Below(random, milliseconds(5));
  // Not so small that the largest layer crosses a link in more than a thousand pieces: nobody would
  // wait for that. Single bytes know no segments, and their clusters are small.
  world.network.segment_bytes = std::max(Skewed(random, 16'384), largest_layer / 1000);
  world.network.cut = single_bytes         ? sim::Cut::kSingleBytes
                      : random.Chance(0.5) ? sim::Cut::kRandomSegments
                                           : sim::Cut::kFullSegments;
  // Before every task, and a frame takes two: more would make a member slower than any machine.
  world.simulation.max_jitter = random.Chance(0.3) ? Duration{0} : Below(random, microseconds(50));
}

void DrawFlow(Random& random, bool single_bytes, std::uint64_t send_buffer_bytes, JobOptions& job) {
  job.node.strategy.flow_is_fixed = random.Chance(0.5);
  job.node.strategy.flow.chunk_bytes = Skewed(random, std::min<std::uint64_t>(262'144, send_buffer_bytes));
  job.node.strategy.flow.write_bytes =
      std::max<std::size_t>(job.node.strategy.flow.chunk_bytes, Skewed(random, send_buffer_bytes));
  if (!single_bytes && job.node.strategy.flow.chunk_bytes < 100) job.node.strategy.flow.chunk_bytes += 100;
  // A window that is smaller than most slices, and stays where the flow does.
  if (random.Chance(0.5)) job.node.strategy.flow.window_bytes = Skewed(random, 65'536);
}

void DrawFault(Random& random, Cluster& c) {
  const std::uint16_t members = static_cast<std::uint16_t>(c.job.workers + c.job.servers);
  if (members < 2 || !random.Chance(0.4)) return;
  c.fault = random.Chance(0.6) ? Fault::kKill : Fault::kFreeze;
  c.victim = static_cast<std::uint16_t>(random.Below(members));
  c.after_means = random.Below(c.job.steps * c.job.layers.size() * c.job.workers);
  c.and_then = Below(random, milliseconds(30));
}

// Half of them as a published system would send (benchmarks/replay, Mode).
void DrawOrder(Random& random, JobOptions& job) {
  if (!random.Chance(0.5)) return;
  constexpr messaging::Order kOrders[] = {messaging::Order::kArrival, messaging::Order::kLayer,
                                          messaging::Order::kTwoPhase};
  job.node.strategy.order = kOrders[random.Below(std::size(kOrders))];
  if (random.Chance(0.3)) job.node.strategy.placement = random.Chance(0.5) ? plan::Placement::kWhole : plan::Placement::kPairs;
}

// Half of them leave zeros out of every factor.
void DrawCompression(Random& random, JobOptions& job) {
  if (!random.Chance(0.5)) return;
  job.node.strategy.zero_compression = plan::ZeroCompression::kAlways;
  job.gradients.zeros = random.Unit();
}

// Half of them send through several lanes.
void DrawLanes(Random& random, JobOptions& job) {
  job.node.lanes = random.Chance(0.5) ? 1 : static_cast<std::uint16_t>(random.Between(2, 4));
}

// In half of them members do not all watch each other, where there are eight or more.
void DrawWatching(Random& random, JobOptions& job) {
  if (random.Chance(0.5)) job.node.liveness.most_in_pairs = 2;
}

std::string WordsOf(const Cluster& c, std::uint64_t seed) {
  const JobOptions& job = c.job;
  const VirtualOptions& world = c.world;
  std::ostringstream words;
  words << "seed " << seed << ": P " << job.workers << ", S " << job.servers << ", " << job.layers.size() << " layers, "
        << job.steps << " steps, final plan at " << job.node.final_plan_step << ", chunks of "
        << job.node.strategy.flow.chunk_bytes << ", writes of " << job.node.strategy.flow.write_bytes << ", windows of " << job.node.strategy.flow.window_bytes << ", rate "
        << world.rate << " B/s, latency " << ToSeconds(world.network.latency) * 1e6 << " us, jitter "
        << ToSeconds(world.network.max_jitter) * 1e6 << " us, oversleep "
        << ToSeconds(world.simulation.max_jitter) * 1e6 << " us, sockets of " << world.network.send_buffer_bytes
        << (world.network.cut == sim::Cut::kSingleBytes ? ", single bytes" : "")
        << (job.lockstep ? ", in lockstep" : "") << (job.gradients.absent > 0 ? ", absences" : "")
        << (job.gradients.weighted ? ", weights" : "") << ", order " << messaging::NameOf(job.node.strategy.order)
        << (job.node.strategy.placement == plan::Placement::kWhole ? ", layers whole" : "")
        << (job.node.strategy.placement == plan::Placement::kPairs ? ", in pairs" : "") << ", zero compression "
        << plan::NameOf(job.node.strategy.zero_compression) << ", lanes " << job.node.lanes << ", all watched up to " << job.node.liveness.most_in_pairs;
  for (const std::string& machine : job.machines) words << (machine.empty() ? " -" : " " + machine);
  if (c.fault != Fault::kNone) {
    words << ", member " << c.victim << (c.fault == Fault::kKill ? " is killed" : " freezes")
          << " after " << c.after_means << " results and " << ToSeconds(c.and_then) * 1e3
          << " ms, dead after " << ToSeconds(job.node.liveness.dead_after) << " s";
  }
  return words.str();
}

// The order of the draws is part of what a seed means.
Cluster DrawCluster(std::uint64_t seed) {
  Random random(seed * 7919 + 17);
  Cluster c;
  const bool single_bytes = random.Chance(0.1);
  DrawMembers(random, c.job);
  DrawPlanning(random, single_bytes, c.job);
  DrawLayers(random, single_bytes, c.job);
  DrawTraining(random, single_bytes, c.job);
  std::uint64_t largest = 0;
  for (const auto& layer : c.job.layers) largest = std::max(largest, layer.bytes());
  DrawWorld(random, single_bytes, largest, c.world);
  DrawFlow(random, single_bytes, c.world.network.send_buffer_bytes, c.job);
  DrawFault(random, c);
  DrawOrder(random, c.job);
  DrawCompression(random, c.job);
  DrawLanes(random, c.job);
  DrawWatching(random, c.job);
  c.job.gradients.seed = c.world.network.seed = c.world.simulation.seed = seed;
  c.words = WordsOf(c, seed);
  return c;
}

// A server freezes or dies unnoticed where all it owed has left already and the workers are done
// before its silence, or the end of its connections, is noticed: then the job has ended well, for all
// who live.
bool EndedWithoutTheServer(const Job& job, const Cluster& c) {
  if (c.victim < c.job.workers) return false;
  for (std::uint16_t m = 0; m < job.members(); ++m) {
    const Outcome& outcome = job.outcome(MemberId(m));
    const bool has_everything =
        m >= c.job.workers || outcome.means == c.job.steps * c.job.layers.size();
    if (m != c.victim && !(outcome.ended.ok() && has_everything)) return false;
  }
  return true;
}

// Runs the cluster and checks what must hold; the hash of its course.
std::uint64_t RunCluster(const Cluster& c) {
  VirtualWorld world(c.world);
  sim::Simulation& simulation = world.simulation();
  {
    Job job(world, c.job);
    job.Start();
    if (c.fault == Fault::kNone) {
      if (!job.AwaitEnd()) {
        ADD_FAILURE() << "somebody waits for ever";
        return 0;
      }
      job.ExpectAllWell();
      if (c.job.gradients.absent == 0) job.ExpectExactPayload();
      return simulation.hash();
    }

    EXPECT_TRUE(world.Await(job.landed(), c.after_means)) << "the job got stuck before the fault";
    simulation.RunFor(c.and_then);
    const TimePoint at = simulation.now();
    const bool formed = job.ready() == job.members();
    // Once a worker has everything, the fault may come too late for the others to notice.
    const bool late = job.leaving() > 0;
    if (c.fault == Fault::kKill) {
      job.Kill(MemberId(c.victim));
    } else {
      const sim::ProcessId process = VirtualWorld::ProcessOf(job.site(MemberId(c.victim)));
      simulation.Pause(process);
      // The ones that live end in time; the frozen one wakes up afterwards.
      const Duration bound = c.job.node.liveness.dead_after + milliseconds(500);
      if (formed) {
        simulation.RunUntil(at + bound);
        const bool unneeded = EndedWithoutTheServer(job, c);
        for (std::uint16_t m = 0; m < job.members(); ++m) {
          if (m == c.victim || late || unneeded) continue;
          EXPECT_EQ(job.outcome(MemberId(m)).failures_told, 1) << "member " << m;
        }
      } else {
        simulation.RunFor(c.job.node.join_timeout + bound);
      }
      simulation.Resume(process);
    }
    if (!job.AwaitEnd()) {
      ADD_FAILURE() << "somebody waits for ever after the fault";
      return 0;
    }
    const bool unneeded = EndedWithoutTheServer(job, c);
    for (std::uint16_t m = 0; m < job.members(); ++m) {
      if (m == c.victim || unneeded) continue;
      const Outcome& outcome = job.outcome(MemberId(m));
      if (late && outcome.ended.ok()) continue;
      EXPECT_FALSE(outcome.ended.ok()) << "member " << m << " did not notice";
      EXPECT_EQ(outcome.failures_told, 1) << "member " << m;
      if (formed && c.fault == Fault::kFreeze && job.members() == 2) {
        // Of two hosts that do not hear each other neither can know which is well.
        EXPECT_EQ(outcome.failure.culprit(), kNoCulprit) << outcome.failure.ToString();
        EXPECT_THAT(outcome.failure.message(), ::testing::HasSubstr("cannot be told"));
      } else if (formed) {
        EXPECT_EQ(outcome.failure.culprit(), job.outcome(MemberId(c.victim)).member.value())
            << "member " << m << ": " << outcome.failure.ToString();
      } else {
        // Servers have no number before the job has formed.
        const std::int32_t culprit = outcome.failure.culprit();
        EXPECT_TRUE(culprit == kNoCulprit || culprit == c.victim ||
                    (c.victim >= c.job.workers && culprit >= c.job.workers))
            << "member " << m << ": " << outcome.failure.ToString();
      }
      if (formed && c.fault == Fault::kKill) {
        EXPECT_LE(outcome.ended_at - at, seconds(1)) << "member " << m;
      }
    }
  }
  return simulation.hash();
}

TEST(SimulatedCluster, HoldsItsPromisesForEverySeed) {
  const std::uint64_t first = FromEnvironment("POSEIDON_FIRST_SEED", 1);
  const std::uint64_t count = FromEnvironment("POSEIDON_SEEDS", 100);
  int kills = 0;
  int freezes = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Cluster cluster = DrawCluster(seed);
    SCOPED_TRACE(cluster.words);
    const std::uint64_t hash = RunCluster(cluster);
    if (HasFailure()) break;  // one story is enough
    if (seed % 10 == 1) {
      ASSERT_EQ(RunCluster(cluster), hash) << "the same seed took another course";
    }
    kills += cluster.fault == Fault::kKill ? 1 : 0;
    freezes += cluster.fault == Fault::kFreeze ? 1 : 0;
  }
  RecordProperty("kills", kills);
  RecordProperty("freezes", freezes);
}

}  // namespace
}  // namespace poseidon::integration
