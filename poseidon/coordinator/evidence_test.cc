// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>

namespace poseidon::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<Member> Roster(std::uint16_t workers) {
  std::vector<JoinRequest> joined;
  for (std::uint16_t i = 0; i < workers; ++i) {
    JoinRequest request;
    request.connection = ConnectionId(i);
    request.rank = Rank(i);
    request.hosts_coordinator = i == 0;
    request.host = std::string(1, static_cast<char>('a' + i));
    joined.push_back(request);
  }
  return AssignMembers(joined, workers);
}

// What one member sees, at times given in seconds.
class EvidenceScript {
 public:
  EvidenceScript() : state_(BeginEvidence(MemberId(1), Roster(4), LivenessRule{}, TimePoint{})) {}
  std::vector<EvidenceAction> At(double seconds, const EvidenceEvent& event) {
    EvidenceTransition next = Weigh(std::move(state_), event, TimePoint{FromSeconds(seconds)});
    state_ = std::move(next.state);
    return std::move(next.actions);
  }
  const EvidenceState& state() const { return state_; }

 private:
  EvidenceState state_;
};

TEST(Evidence, TheVerdictCounts) {
  EvidenceScript script;
  EXPECT_THAT(script.At(1, PeerAborted{MemberId(0), MemberId(3), "worker 3 was killed"}),
              ElementsAre(EvidenceAction(EndWith{MemberId(3), "worker 3 was killed"})));
  EXPECT_THAT(script.At(1, PeerLost{MemberId(2)}), IsEmpty());
  EXPECT_EQ(NextDeadline(script.state()), std::nullopt);
}

TEST(Evidence, ALostPeerIsReportedAndTheVerdictAwaited) {
  EvidenceScript script;
  EXPECT_THAT(script.At(0.1, PeerLost{MemberId(2)}),
              ElementsAre(EvidenceAction(ReportLost{MemberId(2)})));
  EXPECT_EQ(NextDeadline(script.state()), TimePoint{FromSeconds(0.3)});
  EXPECT_THAT(script.At(0.2, EvidenceTick{}), IsEmpty());
  // Even if it comes at the last moment and says something else.
  EXPECT_THAT(script.At(0.3, PeerAborted{MemberId(0), MemberId(3), "worker 3"}),
              ElementsAre(EvidenceAction(EndWith{MemberId(3), "worker 3"})));
}

TEST(Evidence, WithoutAVerdictTheOwnFirstEvidenceCounts) {
  EvidenceScript script;
  script.At(0.1, PeerLost{MemberId(2)});
  script.At(0.15, PeerAborted{MemberId(3), MemberId(0), "?"});
  EXPECT_THAT(
      script.At(0.3, EvidenceTick{}),
      ElementsAre(EvidenceAction(
          EndWith{MemberId(2), "worker 2 on host c ended without saying why, as worker 1 on host b saw"})));
}

// The reason and its code come from one ABORT, whatever its echoes say.
TEST(Evidence, TheCodeIsThatOfTheFirstEvidence) {
  EvidenceScript echoed;
  echoed.At(0.1, PeerAborted{MemberId(2), MemberId(2), "worker 2 gave up", StatusCode::kAborted});
  echoed.At(0.15, PeerAborted{MemberId(3), MemberId(2), "worker 2 is gone", StatusCode::kDataLoss});
  EXPECT_THAT(echoed.At(0.3, EvidenceTick{}),
              ElementsAre(EvidenceAction(EndWith{MemberId(2), "worker 2 gave up", StatusCode::kAborted})));

  EvidenceScript seen;
  seen.At(0.1, PeerLost{MemberId(2)});
  seen.At(0.15, PeerAborted{MemberId(3), MemberId(2), "worker 2 is gone", StatusCode::kDataLoss});
  const std::vector<EvidenceAction> own = seen.At(0.3, EvidenceTick{});
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(std::get<EndWith>(own[0]).code, StatusCode::kUnavailable) << "a death was seen before";

  EvidenceScript verdict;
  verdict.At(0.1, PeerAborted{MemberId(3), MemberId(2), "worker 2 is gone", StatusCode::kDataLoss});
  EXPECT_THAT(verdict.At(0.15, PeerAborted{MemberId(0), MemberId(2), "has left", StatusCode::kDeadlineExceeded}),
              ElementsAre(EvidenceAction(EndWith{MemberId(2), "has left", StatusCode::kDeadlineExceeded})));
}

// Of three members the coordinator hears nobody. The other member, which weighs that first, blames it; its word overtakes
// the coordinator's own, which names nobody.
TEST(Evidence, WhoHearsNobodyIsBlamedByAllAlsoWhereOneHasLeft) {
  EvidenceScript script;
  for (std::uint16_t about = 1; about <= 3; ++about) script.At(0.1, PeerSuspected{MemberId(0), MemberId(about), false});
  for (const MemberId peer : {MemberId(0), MemberId(2), MemberId(3)}) {
    script.At(0.9, PeerHeard{peer, TimePoint{FromSeconds(0.9)}});
  }
  script.At(1, PeerAborted{MemberId(2), MemberId(0), "worker 0 has heard nobody"});
  script.At(1, PeerAborted{MemberId(3), MemberId(0), "worker 0 has heard nobody"});
  EXPECT_THAT(script.At(1, PeerAborted{MemberId(0), std::nullopt, "worker 0 has heard nobody"}),
              ElementsAre(EvidenceAction(EndWith{MemberId(0), "worker 0 has heard nobody"})));
}

TEST(Evidence, TheCoordinatorsEndIsBlamedAtOnce) {
  EvidenceScript script;
  EXPECT_THAT(
      script.At(0.1, PeerLost{MemberId(0)}),
      ElementsAre(EvidenceAction(EndWith{
          MemberId(0), "worker 0 on host a, which runs the coordinator, ended without saying why, as "
                       "worker 1 on host b saw"})));
}

// Seed 3272 of the simulated clusters: the coordinator's host died while the job formed, and a worker that
// had not met this one yet was gone before its own end came here.
TEST(Evidence, TheCoordinatorsEndExplainsALossWhileTheJobForms) {
  EvidenceScript script;
  EXPECT_THAT(script.At(0.1, PeerLost{MemberId(2)}),
              ElementsAre(EvidenceAction(ReportLost{MemberId(2)})));
  EXPECT_THAT(
      script.At(0.2, PeerLost{MemberId(0)}),
      ElementsAre(EvidenceAction(EndWith{
          MemberId(0), "worker 0 on host a, which runs the coordinator, ended without saying why, as "
                       "worker 1 on host b saw"})));

  EvidenceScript told;
  told.At(0.1, PeerAborted{MemberId(2), MemberId(3), "worker 3 is silent"});
  told.At(0.11, PeerLost{MemberId(3)});
  EXPECT_THAT(told.At(0.2, PeerLost{MemberId(0)}),
              ElementsAre(EvidenceAction(EndWith{MemberId(3), "worker 3 is silent"})));
}

// The coordinator froze between two welcomes: a worker without one gave up on it and ended.
TEST(Evidence, TheCoordinatorsSilenceExplainsALossWhileTheJobForms) {
  const double dead = ToSeconds(LivenessRule{}.dead_after_silence());
  EvidenceScript script;
  for (double at = 0.1; at < dead - 0.15; at += 0.1) {
    for (const MemberId other : {MemberId(2), MemberId(3)}) script.At(at, PeerHeard{other});
    script.At(at, EvidenceTick{});
  }
  EvidenceScript heard = script;
  script.At(dead - 0.1, PeerLost{MemberId(2)});
  EXPECT_GT(*NextDeadline(script.state()), TimePoint{FromSeconds(dead - 0.1)});
  EXPECT_THAT(script.At(dead - 0.01, EvidenceTick{}), IsEmpty());
  const std::vector<EvidenceAction> actions = script.At(dead, EvidenceTick{});
  ASSERT_EQ(actions.size(), 1u);
  // Half of the members are heard: nobody can know who is cut off.
  EXPECT_EQ(std::get<EndWith>(actions[0]).culprit, std::nullopt);

  // One that is heard again has a verdict to give.
  heard.At(dead - 0.1, PeerLost{MemberId(2)});
  heard.At(dead - 0.05, PeerHeard{MemberId(0)});
  const std::vector<EvidenceAction> own = heard.At(dead + 0.1, EvidenceTick{});
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(std::get<EndWith>(own[0]).culprit, MemberId(2));
}

// Two are killed at once, the coordinator's host among them; which end comes first here is chance.
TEST(Evidence, WhenTheCoordinatorIsLostTooAllNameItUnlessSomebodyHasHeardTheVerdict) {
  EvidenceScript lost;
  lost.At(0.05, Formed{});
  lost.At(0.1, PeerLost{MemberId(2)});
  EXPECT_THAT(lost.At(0.2, PeerLost{MemberId(0), Unavailable("it was reset")}), IsEmpty());
  EXPECT_EQ(NextDeadline(lost.state()), TimePoint{FromSeconds(0.4)});
  EXPECT_THAT(lost.At(0.4, EvidenceTick{}),
              ElementsAre(EvidenceAction(EndWith{
                  MemberId(0), "worker 0 on host a, which runs the coordinator, was lost: it was reset, "
                               "as worker 1 on host b saw; so was worker 2 on host c"})));

  EvidenceScript told;
  told.At(0.05, Formed{});
  told.At(0.1, PeerLost{MemberId(2)});
  told.At(0.2, PeerLost{MemberId(0)});
  EXPECT_THAT(told.At(0.3, PeerAborted{MemberId(3), MemberId(2), "worker 2 was killed"}),
              ElementsAre(EvidenceAction(EndWith{MemberId(2), "worker 2 was killed"})));
}

TEST(Evidence, APeersWordAboutTheCoordinatorIsTakenAfterTheWait) {
  EvidenceScript script;
  EXPECT_THAT(script.At(0.1, PeerAborted{MemberId(2), MemberId(0), "worker 0 is silent"}),
              IsEmpty());
  EXPECT_THAT(script.At(0.12, PeerLost{MemberId(2)}), IsEmpty());
  EXPECT_THAT(script.At(0.31, EvidenceTick{}),
              ElementsAre(EvidenceAction(EndWith{MemberId(0), "worker 0 is silent"})));
}

TEST(Evidence, ASilentPeerIsReportedButNotJudged) {
  EvidenceScript script;
  std::vector<EvidenceAction> all;
  for (double t = 0.5; t < 100; t += 0.5) {
    for (const MemberId peer : {MemberId(0), MemberId(3)}) script.At(t, PeerHeard{peer});
    for (auto& action : script.At(t, EvidenceTick{})) all.push_back(std::move(action));
  }
  EXPECT_THAT(all, ElementsAre(EvidenceAction(ReportSuspect{
                       MemberId(2), false, "worker 2 on host c has been silent for 4.0 s"})));
  EXPECT_THAT(
      script.At(100, PeerHeard{MemberId(2)}),
      ElementsAre(EvidenceAction(ReportSuspect{
          MemberId(2), true, "worker 2 on host c is heard again after 100.0 s of silence"})));
}

TEST(Evidence, OnceDoneAPeerMayLeaveBeforeTheWordHasCome) {
  EvidenceScript script;
  script.At(0.1, OwnDone{});
  EXPECT_THAT(script.At(0.2, PeerLost{MemberId(2)}),
              ElementsAre(EvidenceAction(ReportLost{MemberId(2)})));
  EXPECT_THAT(script.At(0.5, EvidenceTick{}), IsEmpty());
  EXPECT_THAT(script.At(0.6, FinishHeard{}), IsEmpty());
  EXPECT_THAT(script.At(0.7, PeerLost{MemberId(0)}), IsEmpty());
  EXPECT_EQ(NextDeadline(script.state()), std::nullopt);
}

// ---- the whole job: the two state machines against each other over links that delay

// Members 0..n-1 on virtual time. Every message takes a random while, links keep order, and a
// suspended member finds what arrived meanwhile when it goes on, its own timers in between.
class VirtualJob {
 public:
  // In a job of more members, few watch each other.
  static constexpr std::size_t kMostInPairs = 8;

  VirtualJob(std::uint64_t seed, std::uint16_t count, double dead_after)
      : random_(seed), rule_{.dead_after = FromSeconds(dead_after), .most_in_pairs = kMostInPairs}, members_(count) {
    MembershipOptions options;
    options.workers = count;
    options.liveness = rule_;
    membership_ = BeginMembership(options, now_);
    for (std::uint16_t i = 0; i < count; ++i) {
      JoinRequest request;
      request.connection = ConnectionId(i);
      request.rank = Rank(i);
      request.hosts_coordinator = i == 0;
      membership_ = Next(std::move(membership_), Joined{request}, now_).state;
    }
    for (std::uint16_t i = 0; i < count; ++i) {
      membership_ = Next(std::move(membership_), Ready{MemberId(i)}, now_).state;
      if (i > 0) {
        members_[i].evidence = BeginEvidence(MemberId(i), membership_.members, rule_, now_);
      }
    }
    for (std::uint16_t i = 0; i < count; ++i) {
      Later(i, Uniform(0, 0.5), [this, i] { Beat(i); });
      ArmTimer(i);
    }
  }

  void At(double seconds, std::function<void()> what) {
    queue_.push({TimePoint{FromSeconds(seconds)}, ++order_, kNobody, std::move(what)});
  }
  void RunUntil(double seconds) {
    const TimePoint until{FromSeconds(seconds)};
    while (!queue_.empty() && queue_.top().when <= until) {
      Entry entry = queue_.top();
      queue_.pop();
      now_ = entry.when;
      Deliver(std::move(entry));
    }
    now_ = until;
  }

  // Nothing passes between the two any more.
  void Cut(std::uint16_t a, std::uint16_t b) {
    cut_.insert({a, b});
    cut_.insert({b, a});
  }
  void WaitInVain(std::uint16_t member) { Observe(member, Waiting{true}); }
  std::uint64_t heartbeats() const { return heartbeats_; }
  void Kill(std::uint16_t victim) {
    if (members_[victim].ended) return;
    members_[victim].dead = true;
    CloseAll(victim);
  }
  void Suspend(std::uint16_t victim) { members_[victim].suspended = true; }
  void Resume(std::uint16_t victim) {
    members_[victim].suspended = false;
    auto missed = std::exchange(members_[victim].missed, {});
    // Links keep their order, but a timer may come before what was read late.
    if (random_() % 2 == 0) Tick(victim);
    for (Entry& entry : missed) Deliver(std::move(entry));
  }
  void SetDone(std::uint16_t member) {
    if (member == 0) return Coordinate(Done{MemberId(0)});
    Observe(member, OwnDone{});
    Send(member, 0, [this, member] { Coordinate(Done{MemberId(member)}); });
  }

  struct Ending {
    std::optional<MemberId> culprit;
    double at = 0;
  };
  std::optional<Ending> ending(std::uint16_t member) const { return members_[member].ending; }
  bool finished(std::uint16_t member) const { return members_[member].finished; }
  // When anyone alive first named this member as silent.
  std::optional<double> named(std::uint16_t member) const {
    const auto found = named_.find(member);
    return found == named_.end() ? std::nullopt : std::optional(found->second);
  }
  std::size_t size() const { return members_.size(); }
  std::uint64_t Draw(std::uint64_t below) { return random_() % below; }
  double Uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

 private:
  static constexpr std::uint16_t kNobody = 0xffff;
  struct Entry {
    TimePoint when;
    std::uint64_t order = 0;
    std::uint16_t member = kNobody;  // on whose executor it runs
    std::function<void()> what;
    bool operator<(const Entry& other) const {
      return std::pair(other.when, other.order) < std::pair(when, order);
    }
  };
  struct Node {
    std::optional<EvidenceState> evidence;
    bool dead = false;
    bool suspended = false;
    bool ended = false;
    bool finished = false;
    std::vector<Entry> missed;
    std::uint64_t timer = 0;
    std::optional<Ending> ending;
  };

  void Deliver(Entry entry) {
    if (entry.member != kNobody) {
      Node& node = members_[entry.member];
      if (node.dead || node.ended) return;
      if (node.suspended) {
        node.missed.push_back(std::move(entry));
        return;
      }
    }
    entry.what();
  }
  void Later(std::uint16_t member, double seconds, std::function<void()> what) {
    queue_.push({now_ + FromSeconds(seconds), ++order_, member, std::move(what)});
  }
  void Send(std::uint16_t from, std::uint16_t to, std::function<void()> what) {
    if (cut_.contains({from, to})) return;
    TimePoint& last = links_[{from, to}];
    last = std::max(last, now_ + FromSeconds(Uniform(0.0001, 0.05)));
    queue_.push({last, ++order_, to, std::move(what)});
  }
  template <typename F>
  void SendToOthers(std::uint16_t from, const F& make) {
    for (std::uint16_t to = 0; to < members_.size(); ++to) {
      if (to != from) Send(from, to, make(to));
    }
  }
  void SendHeartbeats(std::uint16_t from) {
    const Node& node = members_[from];
    for (std::uint16_t to = 0; to < members_.size(); ++to) {
      if (to == from || (node.evidence && !Watches(*node.evidence, MemberId(to)))) continue;
      ++heartbeats_;
      Send(from, to, [this, from, to] {
        if (to == 0) {
          Coordinate(Heard{MemberId(from)});
        } else {
          Observe(to, PeerHeard{MemberId(from)});
        }
      });
    }
  }
  void Beat(std::uint16_t from) {
    SendHeartbeats(from);
    Later(from, ToSeconds(rule_.heartbeat_interval()), [this, from] { Beat(from); });
  }
  void Tell(std::uint16_t from, MemberId about, bool heard_again) {
    SendToOthers(from, [=, this](std::uint16_t to) {
      return [=, this] {
        if (to == 0) {
          Coordinate(Suspected{MemberId(from), about, heard_again});
        } else {
          Observe(to, PeerSuspected{MemberId(from), about, heard_again});
        }
      };
    });
  }
  void CloseAll(std::uint16_t from) {
    SendToOthers(from, [this, from](std::uint16_t to) {
      return [this, from, to] {
        if (to == 0) {
          Coordinate(Lost{MemberId(from), MemberId(0)});
        } else {
          Observe(to, PeerLost{MemberId(from)});
        }
      };
    });
  }
  void End(std::uint16_t member, const std::optional<MemberId>& culprit,
           const std::string& reason) {
    SendToOthers(member, [=, this](std::uint16_t to) {
      return [=, this] {
        if (to == 0) {
          Coordinate(Aborted{MemberId(member), culprit, reason});
        } else {
          Observe(to, PeerAborted{MemberId(member), culprit, reason});
        }
      };
    });
    CloseAll(member);
    members_[member].ending = Ending{culprit, ToSeconds(now_.since_origin)};
    members_[member].ended = true;
  }
  void Finish(std::uint16_t member) {
    if (member != 0) Observe(member, FinishHeard{});
    CloseAll(member);
    members_[member].finished = true;
    members_[member].ended = true;
  }
  void NoteNamed(MemberId member) { named_.emplace(member.value(), ToSeconds(now_.since_origin)); }

  void Coordinate(const Event& event) {
    Transition next = Next(std::move(membership_), event, now_);
    membership_ = std::move(next.state);
    for (const Action& action : next.actions) {
      if (const auto* suspect = std::get_if<NameSuspect>(&action)) {
        if (!suspect->heard_again) NoteNamed(suspect->member);
        if (suspect->tell) Tell(0, suspect->member, suspect->heard_again);
      } else if (const auto* verdict = std::get_if<AbortAll>(&action)) {
        End(0, verdict->culprit, verdict->reason);
      } else if (std::holds_alternative<FinishAll>(action)) {
        SendToOthers(0, [this](std::uint16_t to) { return [this, to] { Finish(to); }; });
        Finish(0);
      }
    }
    ArmTimer(0);
  }
  void Observe(std::uint16_t self, const EvidenceEvent& event) {
    const bool was_alarmed = members_[self].evidence->alarmed;
    EvidenceTransition next = Weigh(*std::move(members_[self].evidence), event, now_);
    members_[self].evidence = std::move(next.state);
    if (members_[self].evidence->alarmed && !was_alarmed) SendHeartbeats(self);
    for (const EvidenceAction& action : next.actions) {
      if (const auto* lost = std::get_if<ReportLost>(&action)) {
        Send(self, 0, [this, peer = lost->peer, self] { Coordinate(Lost{peer, MemberId(self)}); });
      } else if (const auto* suspect = std::get_if<ReportSuspect>(&action)) {
        if (!suspect->heard_again) NoteNamed(suspect->peer);
        Tell(self, suspect->peer, suspect->heard_again);
      } else if (const auto* end = std::get_if<EndWith>(&action)) {
        End(self, end->culprit, end->reason);
      }
    }
    ArmTimer(self);
  }
  void Tick(std::uint16_t member) {
    if (member == 0) {
      Coordinate(coordinator::Tick{});
    } else {
      Observe(member, EvidenceTick{});
    }
  }
  void ArmTimer(std::uint16_t member) {
    const std::optional<TimePoint> due =
        member == 0 ? NextDeadline(membership_) : NextDeadline(*members_[member].evidence);
    const std::uint64_t timer = ++members_[member].timer;
    if (!due) return;
    queue_.push({std::max(*due, now_), ++order_, member, [this, member, timer] {
                   if (members_[member].timer == timer) Tick(member);
                 }});
  }

  std::mt19937_64 random_;
  const LivenessRule rule_;
  TimePoint now_;
  std::uint64_t order_ = 0;
  std::priority_queue<Entry> queue_;
  std::map<std::pair<std::uint16_t, std::uint16_t>, TimePoint> links_;
  MembershipState membership_;
  std::vector<Node> members_;
  std::map<std::uint16_t, double> named_;
  std::set<std::pair<std::uint16_t, std::uint16_t>> cut_;
  std::uint64_t heartbeats_ = 0;
};

// Small jobs, and some in which members watch few.
std::uint16_t CountOf(std::uint64_t seed, std::uint16_t least) {
  return static_cast<std::uint16_t>(seed % 8 == 7 ? 20 + seed % 5 : least + seed % 7);
}

constexpr std::uint64_t kSeeds = 100;

TEST(Job, SurvivorsOfAKillAllBlameTheVictimWithinASecond) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    VirtualJob job(seed, CountOf(seed, 2), 5);
    const auto victim = static_cast<std::uint16_t>(job.Draw(job.size()));
    const double when = job.Uniform(1, 4);
    job.At(when, [&] { job.Kill(victim); });
    job.RunUntil(30);
    for (std::uint16_t i = 0; i < job.size(); ++i) {
      if (i == victim) continue;
      ASSERT_TRUE(job.ending(i).has_value());
      EXPECT_EQ(job.ending(i)->culprit, MemberId(victim));
      EXPECT_LE(job.ending(i)->at, when + 0.5);
    }
    if (HasFailure()) return;
  }
}

TEST(Job, SurvivorsOfTwoKillsBlameTheSameVictim) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    VirtualJob job(seed, CountOf(seed, 4), 5);
    const auto first = static_cast<std::uint16_t>(1 + job.Draw(job.size() - 1));
    const auto second = static_cast<std::uint16_t>(1 + job.Draw(job.size() - 1));
    const double when = job.Uniform(1, 4);
    job.At(when, [&] { job.Kill(first); });
    job.At(when + job.Uniform(0, 0.06), [&] { job.Kill(second); });
    job.RunUntil(30);
    std::optional<MemberId> blamed;
    for (std::uint16_t i = 0; i < job.size(); ++i) {
      if (i == first || i == second) continue;
      ASSERT_TRUE(job.ending(i).has_value());
      if (!blamed) blamed = job.ending(i)->culprit;
      EXPECT_EQ(job.ending(i)->culprit, blamed);
    }
    EXPECT_TRUE(blamed == MemberId(first) || blamed == MemberId(second));
    if (HasFailure()) return;
  }
}

TEST(Job, AFrozenMemberIsNamedAndBlamedByAllAndByItself) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const double dead_after = seed % 2 == 0 ? 5 : 30;
    VirtualJob job(seed, CountOf(seed, 2), dead_after);
    const auto victim = static_cast<std::uint16_t>(job.Draw(job.size()));
    const double when = job.Uniform(1, 4);
    job.At(when, [&] { job.Suspend(victim); });
    job.RunUntil(when + 50);
    for (std::uint16_t i = 0; i < job.size(); ++i) {
      if (i == victim) continue;
      ASSERT_TRUE(job.ending(i).has_value());
      EXPECT_EQ(job.ending(i)->culprit, MemberId(victim));
      EXPECT_LE(job.ending(i)->at, when + dead_after);
    }
    ASSERT_TRUE(job.named(victim).has_value());
    EXPECT_LE(*job.named(victim), when + 5);
    // It wakes up long after and learns what was said of it.
    job.Resume(victim);
    job.RunUntil(when + 60);
    ASSERT_TRUE(job.ending(victim).has_value());
    EXPECT_EQ(job.ending(victim)->culprit, MemberId(victim));
    if (HasFailure()) return;
  }
}

TEST(Job, APauseShorterThanDeadAfterEndsNothing) {
  for (std::uint64_t seed = 0; seed < kSeeds / 3; ++seed) {
    SCOPED_TRACE(seed);
    VirtualJob job(seed, CountOf(seed, 2), 30);
    const auto victim = static_cast<std::uint16_t>(job.Draw(job.size()));
    const double when = job.Uniform(1, 4);
    job.At(when, [&] { job.Suspend(victim); });
    job.At(when + job.Uniform(0.1, 28), [&] { job.Resume(victim); });
    job.RunUntil(45);
    for (std::uint16_t i = 0; i < job.size(); ++i) EXPECT_FALSE(job.ending(i).has_value());
    if (HasFailure()) return;
  }
}

TEST(Job, EverybodyLeavesInPeaceWhenDone) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    VirtualJob job(seed, CountOf(seed, 1), 5);
    for (std::uint16_t i = 0; i < job.size(); ++i) {
      const double when = 3 + (seed % 2 == 0 ? job.Uniform(0, 0.1) : job.Uniform(0, 20));
      job.At(when, [&job, i] { job.SetDone(i); });
    }
    job.RunUntil(60);
    for (std::uint16_t i = 0; i < job.size(); ++i) {
      EXPECT_FALSE(job.ending(i).has_value());
      EXPECT_TRUE(job.finished(i));
    }
    if (HasFailure()) return;
  }
}

// Each has at most two at every power of two, and member 0, which has all.
TEST(LargeJob, HeartbeatsGrowWithPLogP) {
  VirtualJob job(1, 128, 30);
  job.RunUntil(10);
  const std::uint64_t one_round = 127 * (2 * 7 + 1) + 127;
  EXPECT_LE(job.heartbeats(), 21 * one_round);
  EXPECT_GE(job.heartbeats(), 18 * one_round * 13 / 16);
  for (std::uint16_t i = 0; i < job.size(); ++i) EXPECT_FALSE(job.ending(i).has_value());
}

// Members 3 and 6 do not watch each other in a job of 20. Once they wait for each other they do, and nobody knows which end fails.
TEST(LargeJob, ASilentLinkOfTwoWhoDoNotWatchEachOtherIsFoundOnceTheyWait) {
  for (std::uint64_t seed = 0; seed < kSeeds / 5; ++seed) {
    SCOPED_TRACE(seed);
    VirtualJob job(seed, 20, 30);
    job.At(1, [&] { job.Cut(3, 6); });
    job.RunUntil(60);
    ASSERT_FALSE(job.ending(3).has_value()) << "nobody has missed anything";
    job.At(61, [&] {
      job.WaitInVain(3);
      job.WaitInVain(6);
    });
    job.RunUntil(61 + 35);
    for (std::uint16_t i = 0; i < job.size(); ++i) {
      ASSERT_TRUE(job.ending(i).has_value()) << i;
      EXPECT_EQ(job.ending(i)->culprit, std::nullopt) << i;
    }
    if (HasFailure()) return;
  }
}

// The member of many silent links is to blame, also where most of them are between members that did not watch each other.
TEST(LargeJob, AMemberWhoseLinksFailIsBlamedByAll) {
  for (std::uint64_t seed = 0; seed < kSeeds / 5; ++seed) {
    SCOPED_TRACE(seed);
    VirtualJob job(seed, 20, seed % 2 == 0 ? 5 : 30);
    const auto victim = static_cast<std::uint16_t>(1 + job.Draw(job.size() - 1));
    job.At(1, [&] {
      for (std::uint16_t i = 1; i < job.size(); ++i) {
        if (i != victim) job.Cut(victim, i);
      }
    });
    job.RunUntil(60);
    for (std::uint16_t i = 0; i < job.size(); ++i) {
      ASSERT_TRUE(job.ending(i).has_value()) << i;
      EXPECT_EQ(job.ending(i)->culprit, MemberId(victim)) << i;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace poseidon::coordinator
