// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>

namespace poseidon::coordinator {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A script: events at times given in seconds, and what each led to.
class Script {
 public:
  Script() : Script(Options(3)) {}
  explicit Script(const MembershipOptions& options)
      : state_(BeginMembership(options, TimePoint{})) {}

  static MembershipOptions Options(std::uint16_t workers, std::uint16_t servers = 0,
                                   double dead_after = 30) {
    MembershipOptions options;
    options.workers = workers;
    options.servers = servers;
    options.liveness.dead_after = FromSeconds(dead_after);
    return options;
  }

  std::vector<Action> At(double seconds, const Event& event) {
    now_ = TimePoint{FromSeconds(seconds)};
    Transition next = Next(std::move(state_), event, now_);
    state_ = std::move(next.state);
    reason_ = std::move(next.reason);
    return std::move(next.actions);
  }
  // The ticks that are due until then, and the heartbeats of all members but the silent ones. Whom
  // the coordinator no longer hears, nobody hears, and all say so.
  std::vector<Action> RunUntil(double seconds, const std::vector<std::uint16_t>& silent = {}) {
    const TimePoint until{FromSeconds(seconds)};
    std::vector<Action> all;
    while (true) {
      const auto due = NextDeadline(state_);
      const TimePoint next = std::min(due.value_or(until), next_beat_);
      if (next > until || state_.phase == Phase::kEnded || state_.phase == Phase::kFinished) break;
      const bool beat = next == next_beat_;
      if (beat) {
        for (const Member& member : state_.members) {
          const bool quiet =
              std::find(silent.begin(), silent.end(), member.id.value()) != silent.end();
          if (quiet) continue;
          Collect(all, At(ToSeconds(next.since_origin), Heard{member.id}));
          for (const auto& link : std::exchange(told_, {})) {
            if (link.second == member.id) {
              At(ToSeconds(next.since_origin), Suspected{link.first, link.second, true});
            } else {
              told_.insert(link);
            }
          }
        }
        next_beat_ = next + state_.options.liveness.heartbeat_interval();
      } else {
        Collect(all, At(ToSeconds(next.since_origin), Tick{}));
        for (const std::uint16_t quiet : silent) {
          if (!state_.liveness[quiet].suspected) continue;
          for (const Member& by : state_.members) {
            const bool speaks = by.id.value() != 0 &&
                                std::find(silent.begin(), silent.end(), by.id.value()) == silent.end();
            if (!speaks || !told_.insert({by.id, MemberId(quiet)}).second) continue;
            At(ToSeconds(next.since_origin), Suspected{by.id, MemberId(quiet)});
          }
        }
      }
    }
    return all;
  }
  // Everybody joins at time 0, the host of the coordinator first, and is ready.
  void Form() {
    const MembershipOptions& options = state_.options;
    for (std::uint16_t i = 0; i < options.workers + options.servers; ++i) {
      JoinRequest request = Request(i, std::string(1, static_cast<char>('a' + i)));
      request.role = i < options.workers ? Role::kWorker : Role::kServer;
      request.hosts_coordinator = i == 0;
      At(0, Joined{request});
    }
    for (std::uint16_t i = 0; i < options.workers + options.servers; ++i) {
      At(0, Ready{MemberId(i)});
    }
    ASSERT_EQ(state_.phase, Phase::kRunning);
  }
  static JoinRequest Request(std::uint64_t connection, std::string host,
                             std::optional<std::uint16_t> rank = std::nullopt) {
    JoinRequest request;
    request.connection = ConnectionId(connection);
    request.host = std::move(host);
    request.address = "10.0.0." + std::to_string(connection);
    request.port = 4000;
    if (rank) request.rank = Rank(*rank);
    request.hosts_coordinator = rank == 0;
    return request;
  }

  const MembershipState& state() const { return state_; }
  const std::string& reason() const { return reason_; }
  double now() const { return ToSeconds(now_.since_origin); }

 private:
  static void Collect(std::vector<Action>& all, std::vector<Action> more) {
    for (Action& action : more) all.push_back(std::move(action));
  }
  MembershipState state_;
  TimePoint now_;
  TimePoint next_beat_;
  std::set<std::pair<MemberId, MemberId>> told_;  // links reported by RunUntil
  std::string reason_;
};

std::string RefusalIn(const std::vector<Action>& actions) {
  if (actions.size() != 1 || !std::holds_alternative<Refuse>(actions[0])) return "no refusal";
  return std::get<Refuse>(actions[0]).reason;
}
std::vector<AbortAll> Verdicts(const std::vector<Action>& actions) {
  std::vector<AbortAll> verdicts;
  for (const Action& action : actions) {
    if (const auto* verdict = std::get_if<AbortAll>(&action)) verdicts.push_back(*verdict);
  }
  return verdicts;
}
std::vector<std::string> SuspectLines(const std::vector<Action>& actions) {
  std::vector<std::string> lines;
  for (const Action& action : actions) {
    if (const auto* suspect = std::get_if<NameSuspect>(&action)) lines.push_back(suspect->line);
  }
  return lines;
}

// ---- forming

TEST(Forming, ServersHaveTheNumbersTheyAskFor) {
  Script script(Script::Options(2, 2));
  EXPECT_THAT(script.At(0, Joined{Script::Request(1, "a", 0)}), IsEmpty());
  for (std::uint16_t number : {std::uint16_t{1}, std::uint16_t{0}}) {
    JoinRequest server = Script::Request(10u + number, number == 0 ? "c" : "d");
    server.role = Role::kServer;
    server.rank = Rank(number);
    EXPECT_THAT(script.At(1, Joined{server}), IsEmpty());
  }
  // A server's number takes no worker's rank.
  EXPECT_THAT(script.At(2, Joined{Script::Request(3, "b", 1)}), ElementsAre(Action(WelcomeAll{})));
  ASSERT_EQ(script.state().members.size(), 4u);
  EXPECT_EQ(Describe(script.state().members[2]), "server 0 on host c");
  EXPECT_EQ(Describe(script.state().members[3]), "server 1 on host d");
}

TEST(Forming, WelcomesWhenEverybodyIsThereAndStartsWhenEverybodyIsReady) {
  Script script(Script::Options(2, 1));
  EXPECT_THAT(script.At(0, Joined{Script::Request(1, "a", 0)}), IsEmpty());
  JoinRequest server = Script::Request(2, "c");
  server.role = Role::kServer;
  EXPECT_THAT(script.At(1, Joined{server}), IsEmpty());
  EXPECT_THAT(script.reason(), HasSubstr("1 of 2 workers and 1 of 1 servers"));
  EXPECT_THAT(script.At(2, Joined{Script::Request(3, "b", 1)}), ElementsAre(Action(WelcomeAll{})));
  ASSERT_EQ(script.state().members.size(), 3u);
  EXPECT_EQ(Describe(script.state().members[1]), "worker 1 on host b");
  EXPECT_EQ(Describe(script.state().members[2]), "server 0 on host c");
  EXPECT_EQ(script.state().members[2].connection, ConnectionId(2));

  EXPECT_THAT(script.At(3, Ready{MemberId(1)}), IsEmpty());
  EXPECT_THAT(script.At(3, Ready{MemberId(1)}), IsEmpty());
  EXPECT_THAT(script.At(3, Ready{MemberId(0)}), IsEmpty());
  EXPECT_THAT(script.At(3.5, Ready{MemberId(2)}), ElementsAre(Action(StartAll{})));
}

TEST(Forming, AJobKeepsToTheLeastBandwidthThatAMemberSays) {
  Script script(Script::Options(3, 0));
  for (const double bandwidth : {0.0, 5e7, 8e7}) {
    JoinRequest request = Script::Request(static_cast<std::uint64_t>(bandwidth), "a");
    request.hosts_coordinator = bandwidth == 0;
    request.bandwidth = bandwidth;
    script.At(0, Joined{request});
  }
  EXPECT_EQ(script.state().bandwidth, 5e7);
}

TEST(Forming, RanksAreAsAskedElseByHostAndArrival) {
  // Asked for: rank 3. The others: b's two workers stay together although a's came between them.
  std::vector<JoinRequest> joined = {Script::Request(10, "b"),    Script::Request(11, "a"),
                                     Script::Request(12, "a", 0), Script::Request(13, "b"),
                                     Script::Request(14, "c", 3), Script::Request(15, "d")};
  joined[5].role = Role::kServer;
  std::vector<std::uint64_t> connections;
  for (const Member& member : AssignMembers(joined, 5)) {
    connections.push_back(member.connection.value());
  }
  EXPECT_THAT(connections, ElementsAre(12u, 10u, 13u, 14u, 11u, 15u));
}

TEST(Forming, AnyOrderOfArrivalWithRanksGivesTheSameRoster) {
  std::mt19937_64 random(1);
  std::vector<JoinRequest> joined;
  for (std::uint16_t i = 0; i < 7; ++i) {
    joined.push_back(Script::Request(i, i % 2 == 0 ? "a" : "b", i));
  }
  const auto expected = AssignMembers(joined, 7);
  for (int i = 0; i < 100; ++i) {
    std::shuffle(joined.begin(), joined.end(), random);
    EXPECT_EQ(AssignMembers(joined, 7), expected);
  }
}

TEST(Forming, RefusesWithAReason) {
  Script script(Script::Options(3, 1));
  script.At(0, Joined{Script::Request(1, "a", 1)});
  EXPECT_EQ(RefusalIn(script.At(0, Joined{Script::Request(2, "b", 1)})),
            "rank 1 was asked for by the worker on host a (10.0.0.1:4000) and by the worker on "
            "host b (10.0.0.2:4000)");
  EXPECT_EQ(RefusalIn(script.At(0, Joined{Script::Request(3, "b", 7)})),
            "rank 7 was asked for, expected 0 to 2");
  JoinRequest stranger = Script::Request(4, "b");
  stranger.protocol_version = 9;
  EXPECT_EQ(RefusalIn(script.At(0, Joined{stranger})),
            "it speaks protocol version 9, this job speaks version 1");
  JoinRequest other = Script::Request(4, "b");
  other.strategy = "wfbp";
  EXPECT_EQ(RefusalIn(script.At(0, Joined{other})),
            "its strategy is wfbp, expected poseidon, which the process that runs the coordinator has");
  JoinRequest impostor = Script::Request(5, "b", 0);
  impostor.hosts_coordinator = false;
  EXPECT_THAT(RefusalIn(script.At(0, Joined{impostor})), HasSubstr("belongs to the process"));
  // A place is kept for the coordinator's host.
  script.At(0, Joined{Script::Request(6, "b")});
  EXPECT_EQ(RefusalIn(script.At(0, Joined{Script::Request(7, "c")})),
            "this job of 3 workers has all of them");
  JoinRequest server = Script::Request(8, "c");
  server.role = Role::kServer;
  EXPECT_THAT(script.At(0, Joined{server}), IsEmpty());
  server.connection = ConnectionId(9);
  EXPECT_EQ(RefusalIn(script.At(0, Joined{server})), "this job of 1 servers has all of them");
  EXPECT_THAT(script.At(0, Joined{Script::Request(10, "a", 0)}), ElementsAre(Action(WelcomeAll{})));
  EXPECT_EQ(RefusalIn(script.At(1, Joined{Script::Request(11, "z")})),
            "the job has started with all of its 3 workers");
}

TEST(Forming, WhoJoinsTwiceIsNotCounted) {
  Script script(Script::Options(2));
  script.At(0, Joined{Script::Request(1, "a", 1)});
  EXPECT_EQ(RefusalIn(script.At(0, Joined{Script::Request(1, "a", 1)})), "it has joined before");
  EXPECT_THAT(script.state().joined, IsEmpty());
}

TEST(Forming, WhoLeavesEndsTheJobAndIsNamed) {
  Script script(Script::Options(3));
  script.At(0, Joined{Script::Request(1, "a", 0)});
  script.At(0, Joined{Script::Request(2, "b", 2)});
  EXPECT_THAT(script.At(0.1, LeftEarly{ConnectionId(99)}), IsEmpty());
  EXPECT_THAT(script.At(0.2, LeftEarly{ConnectionId(2)}),
              ElementsAre(Action(AbortAll{MemberId(2),
                                          "the worker on host b (10.0.0.2:4000), rank 2, ended "
                                          "before the job had formed"})));
}

TEST(Forming, EndsWhenSomebodyIsMissingForTooLong) {
  Script script(Script::Options(4));
  script.At(0, Joined{Script::Request(1, "a", 0)});
  script.At(5, Joined{Script::Request(2, "b", 2)});
  EXPECT_EQ(NextDeadline(script.state()), TimePoint{FromSeconds(120)});
  EXPECT_THAT(script.At(119, Tick{}), IsEmpty());
  EXPECT_THAT(
      script.At(120, Tick{}),
      ElementsAre(Action(AbortAll{
          MemberId(1), "only 2 of 4 workers have joined within 120.0 s; missing: rank 1, 3"})));
}

TEST(Forming, AMissingServerIsNamedToo) {
  Script script(Script::Options(2, 2));
  script.At(0, Joined{Script::Request(1, "a", 0)});
  script.At(0, Joined{Script::Request(2, "b", 1)});
  JoinRequest server = Script::Request(3, "c");
  server.role = Role::kServer;
  server.rank = Rank(0);
  script.At(0, Joined{server});
  EXPECT_THAT(script.At(120, Tick{}),
              ElementsAre(Action(AbortAll{MemberId(3),
                                          "only 2 of 2 workers and 1 of 2 servers have joined within "
                                          "120.0 s; missing: server 1"})));
}

TEST(Forming, AServerThatLeavesIsNamed) {
  Script script(Script::Options(2, 2));
  script.At(0, Joined{Script::Request(1, "a", 0)});
  JoinRequest server = Script::Request(3, "c");
  server.role = Role::kServer;
  server.rank = Rank(1);
  script.At(0, Joined{server});
  EXPECT_THAT(script.At(1, LeftEarly{ConnectionId(3), "ended", DataLoss("a frame fails its checksum")}),
              ElementsAre(Action(AbortAll{MemberId(3),
                                          "the server on host c (10.0.0.3:4000), server 1, ended "
                                          "before the job had formed: a frame fails its checksum"})));
}

TEST(Forming, TheHostCanGiveUp) {
  Script script(Script::Options(4));
  EXPECT_THAT(script.At(1, Aborted{MemberId(0), std::nullopt, "interrupted"}),
              ElementsAre(Action(AbortAll{std::nullopt, "interrupted"})));
  EXPECT_EQ(RefusalIn(script.At(2, Joined{Script::Request(1, "a")})), "the job has ended");
}

// ---- running

TEST(Running, AKilledMemberIsNamedAtOnce) {
  Script script;
  script.Form();
  EXPECT_THAT(
      script.At(7, Lost{MemberId(2), MemberId(0)}),
      ElementsAre(Action(AbortAll{
          MemberId(2), "worker 2 on host c ended without saying why, as worker 0 on host a saw"})));
}

TEST(Running, WhyAConnectionEndedIsPartOfTheVerdict) {
  Script reset;
  reset.Form();
  EXPECT_THAT(reset.At(7, Lost{MemberId(2), MemberId(1), Unavailable("the connection was reset")}),
              ElementsAre(Action(AbortAll{MemberId(2),
                                          "worker 2 on host c was lost: the connection was reset, "
                                          "as worker 1 on host b saw"})));
  Script corrupt;
  corrupt.Form();
  EXPECT_THAT(corrupt.At(7, Lost{MemberId(2), MemberId(1), DataLoss("a frame fails its checksum")}),
              ElementsAre(Action(AbortAll{MemberId(2),
                                          "worker 1 on host b closed its connection to worker 2 on "
                                          "host c: a frame fails its checksum"})));
}

TEST(Running, TheFirstEvidenceIsTheVerdictAndTheRestAreEchoes) {
  Script script;
  script.Form();
  EXPECT_THAT(
      script.At(7, Lost{MemberId(2), MemberId(1)}),
      ElementsAre(Action(AbortAll{MemberId(2),
                                  "worker 2 on host c ended without saying why, as worker 1 on host b "
                                  "saw"})));
  EXPECT_THAT(script.At(7, Lost{MemberId(1), MemberId(0)}), IsEmpty());
  EXPECT_THAT(script.At(7, Aborted{MemberId(1), MemberId(0), "?"}), IsEmpty());
  EXPECT_THAT(script.At(7, Done{MemberId(0)}), IsEmpty());
  EXPECT_THAT(script.At(99, Tick{}), IsEmpty());
  EXPECT_EQ(script.state().verdict->culprit, MemberId(2));
  EXPECT_EQ(NextDeadline(script.state()), std::nullopt);
}

TEST(Running, WhoGivesUpNamesItself) {
  Script script;
  script.Form();
  EXPECT_THAT(script.At(1, Aborted{MemberId(1), MemberId(1), "the disk is full"}),
              ElementsAre(Action(AbortAll{MemberId(1), "worker 1 on host b: the disk is full"})));
}

TEST(Running, AnInterruptBlamesNobody) {
  Script script;
  script.Form();
  EXPECT_THAT(
      script.At(1, Aborted{MemberId(1), std::nullopt, "interrupted by the user"}),
      ElementsAre(Action(AbortAll{std::nullopt, "worker 1 on host b: interrupted by the user"})));
}

TEST(Running, AFrozenMemberIsNamedAfterFourSecondsAndEndsTheJobBeforeDeadAfter) {
  Script script;
  script.Form();
  EXPECT_THAT(script.RunUntil(60), IsEmpty());
  const auto actions = script.RunUntil(200, {1});
  EXPECT_THAT(SuspectLines(actions), ElementsAre("worker 1 on host b has been silent for 4.0 s"));
  ASSERT_EQ(Verdicts(actions).size(), 1u);
  EXPECT_EQ(Verdicts(actions)[0].culprit, MemberId(1));
  EXPECT_THAT(Verdicts(actions)[0].reason, HasSubstr("worker 1 on host b has been silent"));
  // Last heard at 60 s; dead_after is 30 s.
  EXPECT_LE(script.now(), 90);
  EXPECT_GE(script.now(), 89);
}

TEST(Running, AShortDeadAfterShortensEverything) {
  const LivenessRule five{std::chrono::seconds(5)};
  EXPECT_EQ(five.heartbeat_interval(), milliseconds(500));
  EXPECT_EQ(five.suspect_after(), milliseconds(3500));
  EXPECT_EQ(five.dead_after_silence(), milliseconds(4500));
  const LivenessRule one{std::chrono::seconds(1)};
  EXPECT_EQ(one.heartbeat_interval(), milliseconds(100));
  EXPECT_EQ(one.suspect_after(), milliseconds(700));
  EXPECT_EQ(one.dead_after_silence(), milliseconds(900));
}

TEST(Running, WhoIsHeardAgainIsForgiven) {
  Script script;
  script.Form();
  EXPECT_THAT(SuspectLines(script.RunUntil(6, {1})),
              ElementsAre("worker 1 on host b has been silent for 4.0 s"));
  EXPECT_THAT(SuspectLines(script.RunUntil(40)),
              ElementsAre(HasSubstr("worker 1 on host b is heard again")));
  EXPECT_EQ(script.state().phase, Phase::kRunning);
}

TEST(Running, AnOldSignOfLifeIsNotANewOne) {
  Script script(Script::Options(2, 0, 5));
  script.Form();
  script.At(1, Heard{MemberId(1), TimePoint{FromSeconds(0.2)}});
  EXPECT_EQ(script.state().liveness[1].last_heard, TimePoint{FromSeconds(0.2)});
  script.At(1.5, Heard{MemberId(1), TimePoint{FromSeconds(0.1)}});
  EXPECT_EQ(script.state().liveness[1].last_heard, TimePoint{FromSeconds(0.2)});
  script.At(2, Heard{MemberId(1), TimePoint{FromSeconds(9)}});
  EXPECT_EQ(script.state().liveness[1].last_heard, TimePoint{FromSeconds(2)});
}

TEST(Running, TheObserversOwnAbsenceIsHeldAgainstNobody) {
  // The coordinator's process is suspended for an hour; then its timer fires before it reads.
  Script script;
  script.Form();
  script.RunUntil(10);
  EXPECT_THAT(script.At(3610, Tick{}), IsEmpty());
  EXPECT_EQ(script.state().phase, Phase::kRunning);
  EXPECT_THAT(script.At(3610, Heard{MemberId(1)}), IsEmpty());
  EXPECT_THAT(script.At(3610.1, Aborted{MemberId(2), MemberId(0), "worker 0 was silent"}),
              ElementsAre(Action(AbortAll{MemberId(0), "worker 0 was silent"})));
}

TEST(Running, EventsDoNotPutOffALook) {
  Script script(Script::Options(3, 0, 5));
  script.Form();
  for (int i = 1; i < 90; ++i) {
    script.At(i * 0.05, Heard{MemberId(2)});
    const auto due = NextDeadline(script.state());
    ASSERT_TRUE(due.has_value());
    EXPECT_LE(ToSeconds(due->since_origin), 0.5);
  }
  EXPECT_THAT(SuspectLines(script.At(4.5, Tick{})),
              ElementsAre("worker 1 on host b has been silent for 4.5 s"));
}

TEST(Running, ASilentLinkBetweenTwoThatBothLiveEndsTheJob) {
  Script script;
  script.Form();
  const auto named = script.At(10, Suspected{.by = MemberId(1), .about = MemberId(2)});
  EXPECT_THAT(SuspectLines(named),
              ElementsAre("worker 1 on host b hears nothing from worker 2 on host c"));
  EXPECT_THAT(script.At(10, Suspected{.by = MemberId(1), .about = MemberId(2)}), IsEmpty());
  EXPECT_THAT(Verdicts(script.RunUntil(35)), IsEmpty());
  const auto verdicts = Verdicts(script.RunUntil(36));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].culprit, std::nullopt);
  EXPECT_EQ(verdicts[0].reason,
            "worker 1 on host b has heard nothing from worker 2 on host c for 29.5 s, though both "
            "run: it cannot be told which end of their link fails");
}

TEST(Running, OfSilentLinksTheCommonEndIsBlamed) {
  Script script(Script::Options(4));
  script.Form();
  script.At(10, Suspected{.by = MemberId(1), .about = MemberId(2)});
  script.At(11, Suspected{.by = MemberId(1), .about = MemberId(3)});
  const auto verdicts = Verdicts(script.RunUntil(60));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].culprit, MemberId(1));
}

// A heartbeat earlier than the coordinator's own patience ends, a link with the frozen one is due.
TEST(Running, ALinkToAFrozenMemberDoesNotOvertakeItsSilence) {
  Script script(Script::Options(4));
  script.Form();
  script.RunUntil(10);
  for (const std::uint16_t by : {std::uint16_t{1}, std::uint16_t{2}}) {
    script.At(13.2, Suspected{.by = MemberId(by), .about = MemberId(3)});
  }
  const auto verdicts = Verdicts(script.RunUntil(60, {3}));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].culprit, MemberId(3));
  EXPECT_THAT(verdicts[0].reason, HasSubstr("worker 3 on host d has been silent"));
}

TEST(Running, WhoIsHeardButHearsNobodyIsToBlame) {
  Script script;
  script.Form();
  script.RunUntil(10);
  for (const std::uint16_t about : {std::uint16_t{0}, std::uint16_t{2}}) {
    script.At(10, Suspected{.by = MemberId(1), .about = MemberId(about)});
  }
  const auto verdicts =
      Verdicts(script.At(11, Aborted{MemberId(1), std::nullopt, "worker 1 has heard nobody"}));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].culprit, MemberId(1));
}

TEST(Running, ASilentLinkThatSpeaksAgainIsForgotten) {
  Script script;
  script.Form();
  script.At(10, Suspected{.by = MemberId(1), .about = MemberId(2)});
  EXPECT_THAT(SuspectLines(script.At(12, Suspected{MemberId(1), MemberId(2), true})),
              ElementsAre("worker 1 on host b hears worker 2 on host c again"));
  EXPECT_THAT(script.RunUntil(100), IsEmpty());
}

TEST(Running, LeavingAfterDoneIsNormal) {
  Script script(Script::Options(3, 1));
  script.Form();
  script.At(1, Done{MemberId(2)});
  EXPECT_THAT(script.At(1.1, Lost{MemberId(2), MemberId(0)}), IsEmpty());
  EXPECT_THAT(script.RunUntil(100, {2}), IsEmpty());
  script.At(100, Done{MemberId(0)});
  EXPECT_THAT(script.At(101, Done{MemberId(1)}), ElementsAre(Action(FinishAll{})));
  EXPECT_THAT(script.At(101, Lost{MemberId(3), MemberId(0)}), IsEmpty());
  EXPECT_THAT(script.At(101, Lost{MemberId(1), MemberId(0)}), IsEmpty());
  EXPECT_EQ(script.state().phase, Phase::kFinished);
}

TEST(Running, WhoIsDoneStillServesAndIsStillWatched) {
  Script script;
  script.Form();
  script.At(1, Done{MemberId(2)});
  const auto verdicts = Verdicts(script.RunUntil(100, {2}));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].culprit, MemberId(2));
}

// Any events in any order, with members that do not exist: never more than one verdict, nothing
// after it, and time only moves forward.
TEST(Running, RandomEventsGiveAtMostOneVerdict) {
  std::mt19937_64 random(2);
  int ended = 0;
  for (int i = 0; i < 3000; ++i) {
    Script script(Script::Options(static_cast<std::uint16_t>(1 + i % 4), i % 3 == 0 ? 1 : 0, 5));
    double now = 0;
    int endings = 0;
    bool formed = false;
    for (int k = 0; k < 60; ++k) {
      if (k == 10 && i % 2 == 0) {
        script = Script(script.state().options);
        script.Form();
        formed = true;
        endings = 0;
      }
      const auto member = [&] { return MemberId(static_cast<std::uint16_t>(random() % 6)); };
      now += static_cast<double>(random() % 1000) / 1000;
      std::vector<Action> actions;
      switch (random() % 10) {
        case 0: {
          JoinRequest request = Script::Request(random() % 8, "h");
          if (random() % 2 == 0) request.rank = Rank(static_cast<std::uint16_t>(random() % 5));
          request.hosts_coordinator = random() % 3 == 0;
          if (random() % 4 == 0) request.role = Role::kServer;
          actions = script.At(now, Joined{request});
          break;
        }
        case 1:
          actions = script.At(now, LeftEarly{ConnectionId(random() % 8)});
          break;
        case 2:
          actions = script.At(now, Ready{member()});
          break;
        case 3:
          actions = script.At(now, Lost{member(), member()});
          break;
        case 4:
          actions = script.At(now, Aborted{member(), member(), ""});
          break;
        case 5:
          actions = script.At(now, Suspected{member(), member(), random() % 2 == 0});
          break;
        case 6:
          actions = script.At(now, Done{member()});
          break;
        case 7:
          actions = script.At(now, Tick{});
          break;
        default:
          actions = script.At(now, Heard{member()});
          break;
      }
      const bool was_over = endings > 0;
      for (const Action& action : actions) {
        ASSERT_TRUE(!was_over || std::holds_alternative<Refuse>(action));
        endings += std::holds_alternative<AbortAll>(action) ? 1 : 0;
        endings += std::holds_alternative<FinishAll>(action) ? 1 : 0;
      }
      ASSERT_LE(endings, 1);
      if (const auto due = NextDeadline(script.state()); due && formed) {
        ASSERT_LE(*due - TimePoint{FromSeconds(now)}, milliseconds(500));
      }
    }
    ended += endings;
  }
  EXPECT_GT(ended, 1500);
}

}  // namespace
}  // namespace poseidon::coordinator
