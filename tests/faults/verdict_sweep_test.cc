// SPDX-License-Identifier: Apache-2.0
// Who is blamed: every member and every pair of members is killed, frozen or cut off, at the start, in
// training and at the end, at every phase of the heartbeats, and the verdict of every survivor is held
// against the victims. It names one of them, or it says that nobody can know who is cut off, where
// those who are left have no majority of hosts.
//
// POSEIDON_SEEDS is how many seeds every case is run with (1); each seed draws other phases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "poseidon/base/random.h"
#include "tests/integration/job.h"

namespace poseidon::integration {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr Duration kDeadAfter = seconds(5);
// Until all have ended: what a verdict may wait for, and one heartbeat.
constexpr Duration kEnding = milliseconds(700);
constexpr auto kCannotTell = "cannot be told";

std::uint64_t Seeds() {
  const char* const text = std::getenv("POSEIDON_SEEDS");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

// Members by rank, servers last, and the host of each.
struct Layout {
  std::uint16_t workers = 2;
  std::uint16_t servers = 0;
  std::vector<std::string> hosts;
  bool levels = false;  // workers of a host combine first

  std::uint16_t members() const { return static_cast<std::uint16_t>(workers + servers); }
};

Layout Flat(std::uint16_t workers, std::uint16_t servers = 0) {
  Layout layout{.workers = workers, .servers = servers};
  for (std::uint16_t m = 0; m < layout.members(); ++m) {
    layout.hosts.push_back(std::string(1, static_cast<char>('a' + m)));
  }
  return layout;
}

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts = {Flat(2), Flat(3), Flat(4), Flat(5), Flat(2, 1), Flat(3, 1)};
  layouts.push_back({.workers = 4, .hosts = {"a", "a", "b", "b"}});
  layouts.push_back({.workers = 4, .hosts = {"a", "a", "b", "b"}, .levels = true});
  layouts.push_back({.workers = 4, .hosts = {"a", "a", "a", "a"}});
  layouts.push_back({.workers = 5, .hosts = {"a", "a", "b", "b", "c"}});
  return layouts;
}

enum class Fault { kKill, kFreeze, kVanish, kDeaf, kMute, kCutLink, kCutOneWay };
const char* NameOf(Fault fault) {
  switch (fault) {
    case Fault::kKill: return "killed";
    case Fault::kFreeze: return "frozen";
    case Fault::kVanish: return "hosts cut off";
    case Fault::kDeaf: return "hosts deaf";
    case Fault::kMute: return "hosts mute";
    case Fault::kCutLink: return "link cut";
    case Fault::kCutOneWay: return "link cut one way";
  }
  return "?";
}

using Members = std::vector<std::uint16_t>;

std::vector<Members> SinglesAndPairs(const Layout& layout) {
  std::vector<Members> all;
  for (std::uint16_t a = 0; a < layout.members(); ++a) {
    all.push_back({a});
    for (std::uint16_t b = a + 1u; b < layout.members(); ++b) all.push_back({a, b});
  }
  return all;
}

bool Contains(const Members& members, std::uint16_t member) {
  return std::find(members.begin(), members.end(), member) != members.end();
}

// A job and what is done to it.
class Case {
 public:
  Case(const Layout& layout, Fault fault, const Members& victims, std::uint64_t seed)
      : layout_(layout), fault_(fault), victims_(victims) {
    VirtualOptions options;
    options.simulation = {.seed = seed, .max_jitter = microseconds(50)};
    options.network.seed = seed;
    options.network.max_jitter = microseconds(200);
    options.patience = std::chrono::minutes(5);
    JobOptions job;
    job.workers = layout.workers;
    job.servers = layout.servers;
    job.layers = InForwardOrder({Dense("a", 500), Dense("b", 20)});
    job.steps = 1'000'000;
    job.max_compute = milliseconds(200);
    job.node.probe_bytes = 0;
    job.node.liveness.dead_after = kDeadAfter;
    job.node.join_timeout = seconds(8);
    for (std::uint16_t m = 0; m < layout.members(); ++m) {
      const bool worker = m < layout.workers;
      const std::string site =
          worker ? "w" + std::to_string(m) : "s" + std::to_string(m - layout.workers);
      options.host_of[site] = layout.hosts[m];
      if (layout.levels) job.machines.push_back(layout.hosts[m]);
    }
    if (layout.levels) job.node.levels = plan::Levels::kHost;
    job_options_ = job;
    world_ = std::make_unique<VirtualWorld>(options);
  }

  JobOptions& options() { return job_options_; }
  void Start() {
    job_ = std::make_unique<Job>(*world_, job_options_);
    job_->Start();
  }
  sim::Simulation& simulation() { return world_->simulation(); }
  Job& job() { return *job_; }
  bool Train(std::uint64_t results) { return world_->Await(job_->landed(), results); }

  void Strike() {
    struck_at_ = simulation().now();
    if (fault_ == Fault::kCutLink || fault_ == Fault::kCutOneWay) {
      world_->network().Cut(HostOf(victims_[0]), HostOf(victims_[1]));
      if (fault_ == Fault::kCutLink) world_->network().Cut(HostOf(victims_[1]), HostOf(victims_[0]));
      return;
    }
    for (const std::uint16_t victim : victims_) {
      switch (fault_) {
        case Fault::kKill: job_->Kill(MemberId(victim)); break;
        case Fault::kFreeze: simulation().Pause(ProcessOf(victim)); break;
        case Fault::kVanish: world_->network().Vanish(HostOf(victim)); break;
        default:
          for (std::uint16_t m = 0; m < layout_.members(); ++m) {
            if (layout_.hosts[m] == layout_.hosts[victim]) continue;
            if (fault_ == Fault::kDeaf) {
              world_->network().Cut(HostOf(m), HostOf(victim));
            } else {
              world_->network().Cut(HostOf(victim), HostOf(m));
            }
          }
      }
    }
  }
  // Everybody's end; the frozen wake up when the others must have ended.
  void AwaitEnds(Duration within, bool may_end_well = false) {
    simulation().RunUntil(struck_at_ + within);
    if (fault_ == Fault::kKill) return;
    for (std::uint16_t m = 0; m < layout_.members(); ++m) {
      const bool frozen = fault_ == Fault::kFreeze && Contains(victims_, m);
      const Outcome& outcome = job_->outcome(MemberId(m));
      if (!frozen && !(may_end_well && outcome.ended.ok())) {
        EXPECT_EQ(outcome.failures_told, 1) << "member " << m << " goes on";
      }
    }
    if (fault_ != Fault::kFreeze) return;
    for (const std::uint16_t victim : victims_) simulation().Resume(ProcessOf(victim));
  }

  // The hosts that are hit: of a frozen or killed process, only if nothing else runs there.
  std::set<std::string> HostsHit() const {
    std::set<std::string> hit;
    for (const std::uint16_t victim : victims_) hit.insert(layout_.hosts[victim]);
    if (fault_ != Fault::kKill && fault_ != Fault::kFreeze) return hit;
    for (std::uint16_t m = 0; m < layout_.members(); ++m) {
      if (!Contains(victims_, m)) hit.erase(layout_.hosts[m]);
    }
    return hit;
  }
  std::size_t Hosts() const { return std::set(layout_.hosts.begin(), layout_.hosts.end()).size(); }

  bool IsHit(std::uint16_t member) const {
    return Contains(victims_, member) ||
           (fault_ != Fault::kKill && fault_ != Fault::kFreeze && HostsHit().contains(layout_.hosts[member]));
  }
  std::vector<std::int32_t> Culprits() const {
    std::vector<std::int32_t> culprits;
    for (std::uint16_t m = 0; m < layout_.members(); ++m) {
      if (IsHit(m)) culprits.push_back(job_->outcome(MemberId(m)).member.value());
    }
    return culprits;
  }

  // Checks the end of every member that was not hit itself.
  void ExpectRightVerdicts() {
    const std::vector<std::int32_t> culprits = Culprits();
    const std::size_t gone = HostsHit().size();
    const bool link = fault_ == Fault::kCutLink || fault_ == Fault::kCutOneWay;
    // Hosts on one side only: no process can know whether a network was cut.
    const bool split = fault_ != Fault::kKill && gone > 0 && Hosts() - gone <= gone;
    std::optional<std::int32_t> agreed;
    for (std::uint16_t m = 0; m < layout_.members(); ++m) {
      const Outcome& outcome = job_->outcome(MemberId(m));
      const std::string whose = "member " + std::to_string(m) + ": " + outcome.failure.ToString();
      if (IsHit(m) && !link) continue;
      EXPECT_FALSE(outcome.ended.ok()) << whose;
      const std::int32_t culprit = outcome.failure.culprit();
      if (!agreed) agreed = culprit;
      EXPECT_EQ(culprit, *agreed) << whose << "; another survivor blames another";
      if (culprit == kNoCulprit) {
        EXPECT_TRUE(link || split) << whose;
        EXPECT_THAT(outcome.failure.message(), HasSubstr(kCannotTell)) << whose;
        EXPECT_EQ(outcome.failure.code(), StatusCode::kUnavailable) << whose;
      } else {
        EXPECT_THAT(culprits, ::testing::Contains(culprit)) << whose;
        EXPECT_FALSE(split) << whose;
      }
    }
  }
  // Every survivor blames a victim, or says that nobody came or answered, or that it cannot be told who is lost.
  void ExpectNoInnocentBlamed(bool may_end_well = false) {
    std::vector<std::int32_t> culprits;
    for (const std::uint16_t victim : victims_) culprits.push_back(victim);
    for (std::uint16_t m = 0; m < layout_.members(); ++m) {
      if (IsHit(m)) continue;
      const Outcome& outcome = job_->outcome(MemberId(m));
      if (may_end_well && outcome.ended.ok()) continue;
      const std::string whose = "member " + std::to_string(m) + ": " + outcome.failure.ToString();
      EXPECT_FALSE(outcome.ended.ok()) << whose;
      EXPECT_EQ(outcome.failure.scope(), StatusScope::kJob) << whose;
      if (outcome.failure.culprit() != kNoCulprit) {
        EXPECT_THAT(culprits, ::testing::Contains(outcome.failure.culprit())) << whose;
      } else {
        // It came when the job had ended, or the coordinator was hit before it answered this one.
        EXPECT_THAT(outcome.failure.message(),
                    AnyOf(HasSubstr("cannot reach the coordinator"), HasSubstr("has not answered"),
                          HasSubstr("closed the connection before"), HasSubstr(kCannotTell)))
            << whose;
      }
    }
  }
  // Whoever is cut off blames no one that lives.
  void ExpectTheCutOffBlameNobodyElse() {
    for (std::uint16_t m = 0; m < layout_.members(); ++m) {
      if (!IsHit(m)) continue;
      const Status& failure = job_->outcome(MemberId(m)).failure;
      if (failure.culprit() == kNoCulprit) {
        EXPECT_THAT(failure.message(), HasSubstr(kCannotTell)) << "member " << m;
      } else {
        EXPECT_THAT(Culprits(), ::testing::Contains(failure.culprit()))
            << "member " << m << ": " << failure.ToString();
      }
    }
  }

 private:
  sim::HostId HostOf(std::uint16_t m) { return VirtualWorld::HostOf(job_->site(MemberId(m))); }
  sim::ProcessId ProcessOf(std::uint16_t m) {
    return VirtualWorld::ProcessOf(job_->site(MemberId(m)));
  }

  const Layout layout_;
  const Fault fault_;
  const Members victims_;
  JobOptions job_options_;
  std::unique_ptr<VirtualWorld> world_;
  std::unique_ptr<Job> job_;
  TimePoint struck_at_;
};

std::string Words(const Layout& layout, Fault fault, const Members& victims, std::uint64_t seed) {
  std::ostringstream words;
  words << layout.workers << " workers, " << layout.servers << " servers on";
  for (const std::string& host : layout.hosts) words << " " << host;
  if (layout.levels) words << " in levels";
  words << "; " << NameOf(fault);
  for (const std::uint16_t victim : victims) words << " " << victim;
  words << "; seed " << seed;
  return words.str();
}

std::vector<Members> VictimsOf(const Layout& layout, Fault fault) {
  std::vector<Members> all;
  const bool many_hosts = std::set(layout.hosts.begin(), layout.hosts.end()).size() > 1;
  for (const Members& victims : SinglesAndPairs(layout)) {
    const bool pair = victims.size() == 2;
    const bool one_host = pair && layout.hosts[victims[0]] == layout.hosts[victims[1]];
    switch (fault) {
      case Fault::kKill:
      case Fault::kFreeze:
        if (victims.size() < layout.members()) all.push_back(victims);
        break;
      case Fault::kVanish:
        // A host vanishes with all that runs there: once is enough.
        if (!one_host && many_hosts) all.push_back(victims);
        break;
      case Fault::kDeaf:
      case Fault::kMute:
        if (!pair && many_hosts) all.push_back(victims);
        break;
      case Fault::kCutLink:
      case Fault::kCutOneWay:
        if (!pair || one_host) break;
        all.push_back(victims);
        if (fault == Fault::kCutOneWay) all.push_back({victims[1], victims[0]});
    }
  }
  return all;
}

constexpr Fault kFaults[] = {Fault::kKill, Fault::kFreeze,  Fault::kVanish,   Fault::kDeaf,
                             Fault::kMute, Fault::kCutLink, Fault::kCutOneWay};

class Training : public ::testing::TestWithParam<Fault> {};

TEST_P(Training, TheVerdictIsRight) {
  const Fault fault = GetParam();
  for (const Layout& layout : Layouts()) {
    for (const Members& victims : VictimsOf(layout, fault)) {
      for (std::uint64_t seed = 1; seed <= Seeds(); ++seed) {
        SCOPED_TRACE(Words(layout, fault, victims, seed));
        Random random(seed * 7919 + victims.front() * 31 + victims.back());
        Case one(layout, fault, victims, seed);
        one.Start();
        ASSERT_TRUE(one.Train(8));
        // Any phase of the heartbeats, in steps of a fiftieth.
        one.simulation().RunFor(milliseconds(10 * random.Below(100)));
        one.Strike();
        one.AwaitEnds(fault == Fault::kKill ? seconds(1) : kDeadAfter + kEnding);
        ASSERT_TRUE(one.job().AwaitEnd());
        one.ExpectRightVerdicts();
        if (fault == Fault::kVanish || fault == Fault::kDeaf) one.ExpectTheCutOffBlameNobodyElse();
        if (HasFailure()) break;
      }
    }
  }
}

// While the job forms: at any moment of the first two milliseconds, in which all join, meet and begin.
TEST(AtTheStart, TheVerdictIsRight) {
  for (const Fault fault : {Fault::kKill, Fault::kFreeze}) {
    for (const Layout& layout : {Flat(3), Flat(4), Flat(5), Layout{.workers = 3, .hosts = {"a", "a", "a"}}}) {
      for (const Members& victims : VictimsOf(layout, fault)) {
        if (2 * victims.size() >= layout.members() && layout.hosts[0] != layout.hosts[1]) continue;
        for (std::uint64_t moment = 0; moment < 20; ++moment) {
          SCOPED_TRACE(Words(layout, fault, victims, 7) + ", moment " + std::to_string(moment));
          Case one(layout, fault, victims, 7);
          one.Start();
          one.simulation().RunFor(microseconds(100 * moment));
          one.Strike();
          one.AwaitEnds(fault == Fault::kKill ? seconds(9) : seconds(8) + kDeadAfter + kEnding);
          ASSERT_TRUE(one.job().AwaitEnd());
          one.ExpectNoInnocentBlamed();
          if (HasFailure()) return;
        }
      }
    }
  }
}

// In the last moments everybody may have what it needs: then it ends well, or the verdict is right.
TEST(AtTheEnd, TheVerdictIsRight) {
  for (const Fault fault : {Fault::kKill, Fault::kFreeze, Fault::kVanish}) {
    for (const Layout& layout : {Flat(3), Flat(5), Flat(3, 1)}) {
      for (const Members& victims : VictimsOf(layout, fault)) {
        if (2 * victims.size() >= layout.members()) continue;
        for (std::uint64_t moment = 0; moment < 20; ++moment) {
          SCOPED_TRACE(Words(layout, fault, victims, 7) + ", moment " + std::to_string(moment));
          Case one(layout, fault, victims, 7);
          one.options().steps = 4;
          one.options().max_compute = microseconds(100);
          one.Start();
          ASSERT_TRUE(one.Train(std::uint64_t{8} * layout.workers - 1));
          one.simulation().RunFor(microseconds(100 * moment));
          one.Strike();
          one.AwaitEnds(fault == Fault::kKill ? seconds(1) : kDeadAfter + kEnding, true);
          ASSERT_TRUE(one.job().AwaitEnd());
          one.ExpectNoInnocentBlamed(true);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// ---- cycles of waits

// Some workers call a collective in a step in which the others push.
struct Cycle {
  Layout layout;
  Members strays;
  std::uint64_t step = 0;
  JobOptions::Stray how = JobOptions::Stray::kBeforeThePushes;

  // Those that are fewer; none where as many stray as stay.
  Members Fewer() const {
    Members stay;
    for (std::uint16_t w = 0; w < layout.workers; ++w) {
      if (!Contains(strays, w)) stay.push_back(w);
    }
    if (stay.size() == strays.size()) return {};
    return stay.size() < strays.size() ? stay : strays;
  }
};

Cycle DrawCycle(Random& random) {
  std::vector<Layout> layouts = Layouts();
  layouts.push_back({.workers = 6, .hosts = {"a", "a", "a", "b", "b", "c"}, .levels = true});
  Cycle cycle{.layout = layouts[random.Below(layouts.size())], .strays = {}};
  for (std::uint16_t w = 0; w < cycle.layout.workers; ++w) {
    if (random.Chance(0.4)) cycle.strays.push_back(w);
  }
  if (cycle.strays.empty()) cycle.strays.push_back(static_cast<std::uint16_t>(random.Below(cycle.layout.workers)));
  if (cycle.strays.size() == cycle.layout.workers) cycle.strays.pop_back();
  cycle.step = random.Below(13);  // the final plan comes in step 10
  if (random.Chance(0.5)) cycle.how = JobOptions::Stray::kBetweenThePushes;
  return cycle;
}

TEST(InACycle, WhoLeftTheCommonOrderIsBlamed) {
  for (std::uint64_t seed = 1; seed <= 40 * Seeds(); ++seed) {
    Random random(seed * 104729);
    const Cycle cycle = DrawCycle(random);
    std::ostringstream words;
    words << "seed " << seed << ", " << cycle.layout.workers << " workers, step " << cycle.step << ", strays";
    for (const std::uint16_t stray : cycle.strays) words << " " << stray;
    SCOPED_TRACE(words.str());
    Case one(cycle.layout, Fault::kKill, {}, seed);
    one.options().node.progress.stuck_after = seconds(3);
    one.options().strays = [&cycle](Rank rank, std::uint64_t step) {
      return step == cycle.step && Contains(cycle.strays, rank.value()) ? cycle.how : JobOptions::Stray::kNo;
    };
    one.Start();
    ASSERT_TRUE(one.job().AwaitEnd());
    const Members fewer = cycle.Fewer();
    for (std::uint16_t m = 0; m < cycle.layout.members(); ++m) {
      const Status& failure = one.job().outcome(MemberId(m)).failure;
      EXPECT_EQ(failure.code(), StatusCode::kDeadlineExceeded) << "member " << m << ": " << failure.ToString();
      EXPECT_EQ(failure.culprit(), fewer.empty() ? kNoCulprit : fewer.front()) << "member " << m << ": " << failure.ToString();
      EXPECT_THAT(failure.message(), HasSubstr("waits itself for")) << "member " << m;
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Verdict, Training, ::testing::ValuesIn(kFaults), [](const auto& tested) {
  std::string name = NameOf(tested.param);
  std::erase(name, ' ');
  return name;
});

}  // namespace
}  // namespace poseidon::integration
