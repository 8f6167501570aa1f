// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <variant>
#include <vector>

#include "tools/launch/beats.h"
#include "tools/launch/ending.h"
#include "tools/launch/events.h"
#include "tools/launch/hosts.h"
#include "tools/launch/launcher.h"
#include "tools/launch/members.h"
#include "tools/launch/process.h"

namespace poseidon::launch {
namespace {

TEST(HostsTest, ParsesListsAndRefusesWhatIsNone) {
  const auto hosts = ParseHosts("a:2,b,10.0.0.3:4");
  ASSERT_TRUE(hosts.ok());
  EXPECT_EQ(*hosts, (std::vector<Host>{{"a", 2, 0}, {"b", 1, 0}, {"10.0.0.3", 4, 0}}));
  for (const char* wrong : {"", "a:0", "a:x", ":3", "a:70000", "-oProxyCommand=x"}) {
    EXPECT_FALSE(ParseHosts(wrong).ok()) << wrong;
  }
}

TEST(HostsTest, ReadsHostFilesOldAndNew) {
  const std::string path = testing::TempDir() + "/hosts_" + std::to_string(getpid());
  std::ofstream(path) << "# cluster\n0 10.0.0.1 9999\n1 10.0.0.2 9999\n";
  auto hosts = ReadHostFile(path);
  ASSERT_TRUE(hosts.ok()) << hosts.status().message();
  EXPECT_EQ((*hosts)[1], (Host{"10.0.0.2", 1, 9999}));
  std::ofstream(path) << "a slots=2\nb:3\nc\n";
  hosts = ReadHostFile(path);
  ASSERT_TRUE(hosts.ok());
  EXPECT_EQ(*hosts, (std::vector<Host>{{"a", 2, 0}, {"b", 3, 0}, {"c", 1, 0}}));
  std::ofstream(path) << "a\nb two words\n";
  hosts = ReadHostFile(path);
  ASSERT_FALSE(hosts.ok());
  EXPECT_NE(hosts.status().message().find(path + ":2"), std::string::npos);
  std::remove(path.c_str());
}

TEST(HostsTest, HostsHaveAddressesThatTheOthersReach) {
  auto addresses = AddressesOf({{"localhost", 1, 0}, {"127.0.0.2", 1, 0}}, "here");
  ASSERT_TRUE(addresses.ok()) << addresses.status().message();
  EXPECT_EQ(*addresses, (std::vector<std::string>{"127.0.0.1", "127.0.0.2"}));
  addresses = AddressesOf({{"192.0.2.1", 1, 0}, {"192.0.2.2", 1, 0}}, "here");
  ASSERT_TRUE(addresses.ok());
  EXPECT_EQ(*addresses, (std::vector<std::string>{"192.0.2.1", "192.0.2.2"}));

  addresses = AddressesOf({{"192.0.2.1", 1, 0}, {"127.0.1.1", 1, 0}}, "here");
  ASSERT_FALSE(addresses.ok());
  EXPECT_NE(addresses.status().message().find("'127.0.1.1' is the loopback"), std::string::npos);
  addresses = AddressesOf({{"no..name", 1, 0}, {"127.0.1.1", 1, 0}}, "here");
  ASSERT_FALSE(addresses.ok());
  EXPECT_NE(addresses.status().message().find("'no..name' has no IPv4"), std::string::npos);
}

TEST(HostsTest, PlacesMembersHostByHost) {
  const auto placed = PlaceMembers({{"a", 2, 0}, {"b", 2, 0}}, 3);
  ASSERT_TRUE(placed.ok());
  EXPECT_EQ((*placed)[1].name, "a");
  EXPECT_EQ((*placed)[2].name, "b");
  EXPECT_FALSE(PlaceMembers({{"a", 2, 0}}, 3).ok());
}

TEST(ProcessTest, SaysWhatCannotBeRun) {
  const auto process = Process::Start({"/nonexistent/program"});
  ASSERT_FALSE(process.ok());
  EXPECT_NE(process.status().message().find("/nonexistent/program"), std::string::npos);
}

MemberProcess Shell(const std::string& name, const std::string& script) {
  return {name, {"/bin/sh", "-c", script}, {{"name", name}}};
}

TEST(LauncherTest, OthersLearnWhereRankZeroListens) {
  std::string seen;
  const LaunchOptions options{.grace_seconds = 20,
                              .on_event = [&](const std::string& name, const Event& event) {
                                seen += name + "=" + std::get<Print>(event).text;
                              }};
  const LaunchResult result =
      Launch({Shell("zero", R"(read task; echo '{"event":"listening","host":"h","port":7}')"),
              Shell("one", R"(read task; case "$task" in
                           *'"port":7'*) echo '{"event":"print","text":"yes"}';; esac)")},
             options);
  EXPECT_EQ(result.exit_code, 0) << result.failure;
  EXPECT_EQ(seen, "one=yes");
}

// A library's words, or an event whose field has another type: the person sees the line, and the job goes on.
TEST(LauncherTest, ALineThatIsNoEventIsShownAsItIs) {
  std::vector<std::string> seen;
  const LaunchResult result =
      Launch({Shell("zero", R"(read task; echo 'Epoch 1'; echo '{"event":"failed","message":"m","culprit":"1"}')")},
             {.on_line = [&](const std::string& line) { seen.push_back(line); }});
  EXPECT_EQ(result.exit_code, 0) << result.failure;
  EXPECT_EQ(seen, (std::vector<std::string>{"Epoch 1", R"({"event":"failed","message":"m","culprit":"1"})"}));
}

// Rank 0's first events, in one write: the launcher takes both before anything of rank 1's, so the
// job has formed as soon as rank 1 has joined.
constexpr const char* kListensAndJoins =
    R"(read task; printf '%s\n' '{"event":"listening","host":"h","port":7}' '{"event":"joined"}'; )";

TEST(LauncherTest, AFailureIsToldOnceAndEndsTheJob) {
  const LaunchResult result = Launch(
      {Shell("zero", std::string(kListensAndJoins) + R"(read command;
                        echo '{"event":"failed","message":"worker 1 died","culprit":1}'; exit 3)"),
       Shell("one", R"(read task; echo '{"event":"joined"}'; kill -9 $$)")},
      {.grace_seconds = 0.2, .on_event = {}});
  // Zero waits for a command that never comes: the launcher's patience with it ends.
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.failure, "one was killed by signal 9 (Killed) (ended by the launcher: zero)");
  ASSERT_EQ(result.ends.size(), 2u);
  EXPECT_EQ(result.ends[1].how, "was killed by signal 9 (Killed)");
}

TEST(LauncherTest, TheAccusedIsEndedWhenAllOthersHaveSpoken) {
  const LaunchResult result = Launch(
      {Shell("zero", std::string(kListensAndJoins) + "read command"),
       Shell("one", R"(read task; echo '{"event":"joined"}';
                       echo '{"event":"failed","message":"zero is silent","culprit":0}'; exit 3)")},
      {.grace_seconds = 600, .on_event = {}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.failure, "zero is silent (ended by the launcher: zero)");
}

// Rank 0 cannot know who is cut off; what the other side saw is reported, and counts if that side can.
TEST(LauncherTest, OfTwoSidesBothAreHeard) {
  const auto run = [](const std::string& one) {
    return Launch({Shell("zero", std::string(kListensAndJoins) +
                                     R"(echo '{"event":"failed","message":"one is silent, it cannot be told",)"
                                     R"("culprit":-1,"lost":true}'; exit 3)"),
                   Shell("one", R"(read task; echo '{"event":"joined"}'; echo '{"event":"failed",)" + one +
                                    R"(}'; exit 3)")},
                  {.grace_seconds = 600, .on_event = {}});
  };
  const LaunchResult doubt =
      run(R"("message":"zero is silent, it cannot be told","culprit":-1,"lost":true)");
  EXPECT_EQ(doubt.exit_code, 3);
  EXPECT_EQ(doubt.failure.substr(0, doubt.failure.find(" (ended by")),
            "one is silent, it cannot be told; one says: zero is silent, it cannot be told");
  const LaunchResult told = run(R"("message":"zero is silent","culprit":0)");
  EXPECT_EQ(told.exit_code, 3);
  EXPECT_EQ(told.failure.substr(0, told.failure.find(" (ended by")), "zero is silent");
}

// Says that it lives, in a process of its own, whatever else it does.
constexpr const char* kAnswers = R"(exec 3<&0; (while read question; do echo '{"event":"here"}'; done <&3) & )";

// Counts alone would end it: one is left, one is accused, but the accused is another one.
TEST(LauncherTest, ASurvivorThatIsNotAccusedIsWaitedFor) {
  const LaunchResult result = Launch(
      {Shell("zero", std::string(kListensAndJoins) + kAnswers + R"(echo '{"event":"saving"}'; sleep 1.5;
             echo '{"event":"saved"}'; echo '{"event":"failed","message":"one died","culprit":1}'; exit 3)"),
       Shell("one", R"(read task; echo '{"event":"joined"}'; sleep 0.2; kill -9 $$)"),
       Shell("two", R"(read task; echo '{"event":"joined"}'; sleep 0.4;
             echo '{"event":"failed","message":"one died","culprit":1}'; exit 3)")},
      {.grace_seconds = 600});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.ends[0].how, "exited with code 3");
  EXPECT_EQ(result.failure, "one died; one was killed by signal 9 (Killed)");
}

// And once it has saved, the grace again.
TEST(LauncherTest, WhoIsSavingHasLongerThanTheGrace) {
  const auto ends_with = [](double saving_seconds) {
    return Launch({Shell("zero", std::string(kListensAndJoins) + kAnswers +
                                     R"(echo '{"event":"saving"}'; sleep 2.5; echo '{"event":"saved"}'; sleep 1.3; exit 0)"),
                   Shell("one", R"(read task; echo '{"event":"joined"}'; sleep 0.3; kill -9 $$)")},
                  {.grace_seconds = 2, .answer_seconds = 1, .saving_seconds = saving_seconds})
        .ends[0]
        .how;
  };
  EXPECT_EQ(ends_with(600), "exited with code 0");
  EXPECT_EQ(ends_with(0.3), "was killed by signal 9 (Killed)");
}

// It would be saving for ever: it was stopped as it wrote.
TEST(LauncherTest, WhoIsFrozenWhileSavingIsEnded) {
  const LaunchResult result = Launch(
      {Shell("zero", std::string(kListensAndJoins) + kAnswers + R"(echo '{"event":"saving"}'; kill -STOP 0)"),
       Shell("one", R"(read task; echo '{"event":"joined"}'; sleep 0.3;
             echo '{"event":"failed","message":"zero is silent","culprit":0,"lost":true}'; exit 3)")},
      {.grace_seconds = 600, .answer_seconds = 0.2});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.failure, "zero is silent (ended by the launcher: zero)");
}

// Another timer may be due while the question is open: that does not put off the end of who does not answer.
TEST(EndingTest, AnEarlierMomentAsksNobodyAnew) {
  const MemberProcess frozen = Shell("zero", "exec sleep 600");
  const LaunchOptions options{.answer_seconds = 30};
  Members members(FromSeconds(options.answer_seconds));
  ASSERT_TRUE(members.Start(frozen, frozen.task).ok());
  members.begin()->NoteSaving(true);
  Ending ending(options);
  ending.BeginAfterFailure();
  ending.OnDeadline(members);
  const auto answers_by = ending.deadline();
  ASSERT_TRUE(answers_by);
  ending.Within(FromSeconds(0));
  ending.OnDeadline(members);
  EXPECT_EQ(ending.deadline(), answers_by);
  EXPECT_FALSE(members.begin()->record().ended_by_us);
}

// A disk that hangs: its member writes for ever, and the others have ended the job for it.
TEST(LauncherTest, WhoStandsStillWhileSavingIsEnded) {
  const LaunchResult result = Launch(
      {Shell("zero", std::string(kListensAndJoins) + R"(echo '{"event":"saving"}'; exec sleep 600)"),
       Shell("one", R"(read task; echo '{"event":"joined"}'; sleep 0.3;
             echo '{"event":"failed","message":"zero does not move","culprit":0,"lost":true,"code":"DEADLINE_EXCEEDED"}'
             exit 3)")},
      {.grace_seconds = 600});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.failure, "zero does not move (ended by the launcher: zero)");
}

TEST(LauncherTest, AKilledMemberCountsForMoreThanWhatOthersMakeOfIt) {
  const LaunchResult result = Launch(
      {Shell("zero", std::string(kListensAndJoins) + R"(sleep 0.5;
                        echo '{"event":"failed","message":"no route","culprit":-1}'; exit 1)"),
       Shell("one", R"(read task; echo '{"event":"joined"}'; kill -9 $$)")},
      {.grace_seconds = 600});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.failure, "one was killed by signal 9 (Killed)");
}

TEST(LauncherTest, OfAJobThatHasNotFormedTheOthersEndAsTheLauncherDoes) {
  const LaunchResult result = Launch(
      {Shell("zero", R"(read task; echo '{"event":"listening","host":"h","port":7}'; read end;
             case "$end" in *'"code":3'*) exit 3;; esac; exit 1)"),
       Shell("one", "read task; kill -9 $$")},
      {.grace_seconds = 600});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.failure, "one was killed by signal 9 (Killed) (ended by the launcher: zero)");
  EXPECT_EQ(result.ends[0].how, "exited with code 3");
}

TEST(LauncherTest, ARequestBeforeTheLaunchEndsWithoutAChild) {
  std::string said;
  const LaunchResult result = Launch({Shell("zero", "exec sleep 600")},
                                     {.say = [&](const std::string& sentence) { said = sentence; },
                                      .stop_wished = [] { return true; }});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(said, "stopped before training began");
  EXPECT_TRUE(result.ends.empty());
}

TEST(LauncherTest, AJobThatHasNotFormedStopsWhenItIsAsked) {
  const LaunchResult result = Launch(
      {Shell("zero", R"(read task; kill -INT $PPID; read end; case "$end" in *'"code":0'*) exit 0;; esac; exit 1)")},
      {.grace_seconds = 600});
  EXPECT_EQ(result.exit_code, 0) << result.failure;
}

TEST(LauncherTest, AJobThatCannotStopSaysWhatItWaitsFor) {
  std::string said;
  const LaunchResult result = Launch(
      {Shell("zero", std::string(kListensAndJoins) + "exec sleep 600"),
       Shell("one", R"(read task; echo '{"event":"joined"}'; echo '{"event":"print","text":"ready"}'; kill -STOP $$)")},
      {.grace_seconds = 600,
       .on_event = [](const std::string&, const Event&) { kill(getpid(), SIGINT); },
       .say =
           [&](const std::string& sentence) {
             said += sentence;
             kill(getpid(), SIGTERM);
           }});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(said,
            "stopping; waiting for the end of an iteration of zero, one (is stopped); a second Ctrl-C or SIGTERM "
            "ends all at once");
  EXPECT_EQ(result.failure, "the job was ended at once by a second request to stop");
}

TEST(BeatsTest, AreExpectedAfterTheFirst) {
  Beats beats;
  EXPECT_FALSE(beats.Expected() || beats.Missed());
  beats.Take({{"command", "terminate"}});
  EXPECT_FALSE(beats.Expected());
  beats.Take({{"command", "beat"}, {"within", 600}});
  EXPECT_TRUE(beats.Expected());
  EXPECT_FALSE(beats.Missed());
  beats.Take({{"command", "beat"}, {"within", 0}});
  usleep(1000);
  EXPECT_TRUE(beats.Missed());
  beats.Take({{"command", "pause"}});
  EXPECT_FALSE(beats.Expected() || beats.Missed());
}

// Ctrl-Z at the launcher; somebody lets it go on once it has stopped. It is a process group of its own: the kernel stops
// none in which nobody has a parent outside.
TEST(LauncherTest, MembersElsewhereHearWhetherTheLauncherIsThere) {
  const pid_t launcher = fork();
  ASSERT_GE(launcher, 0);
  if (launcher == 0) {
    setpgid(0, 0);
    MemberProcess elsewhere = Shell("zero", std::string(kListensAndJoins) + R"(
        read first; kill -TSTP $PPID
        for look in $(seq 500); do ! grep -q '^State:.T' /proc/$PPID/status || break; sleep 0.01; done
        kill -CONT $PPID
        read second; read third
        printf '[%s,%s,%s]\n' "$first" "$second" "$third"; test $look -lt 500)");
    elsewhere.remote = true;
    nlohmann::json heard;
    const LaunchResult result =
        Launch({elsewhere}, {.on_line = [&](const std::string& line) { heard = nlohmann::json::parse(line); }});
    const nlohmann::json beat = {{"command", "beat"}, {"within", 60.0}};
    const nlohmann::json expected = nlohmann::json::array({beat, {{"command", "pause"}}, beat});
    if (result.exit_code != 0 || heard != expected) std::cerr << result.failure << " " << heard << "\n";
    _exit(result.exit_code == 0 && heard == expected ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_EQ(status, 0);
}

TEST(LauncherTest, AJobThatHasNotFormedEndsWithItsFirstFailure) {
  const LaunchResult result = Launch(
      {Shell("zero", R"(read task; echo '{"event":"listening","host":"h","port":7}'; cat; exit 1)"),
       Shell("one", "read task; exit 255")},
      {.grace_seconds = 600, .on_event = {}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.failure, "one exited with code 255 (ended by the launcher: zero)");
}

// The fork after which the child stops before it execs, counted from 1. Thread: the test's.
int forks = 0;
int fork_that_stops = 0;

TEST(LauncherTest, WhoIsStoppedBeforeItBeginsIsAMemberThatTheOthersMiss) {
  forks = 0;
  fork_that_stops = 2;
  ASSERT_EQ(pthread_atfork([] { ++forks; }, nullptr, [] { if (forks == fork_that_stops) raise(SIGSTOP); }), 0);
  const LaunchResult result = Launch(
      {Shell("zero", std::string(kListensAndJoins) + R"(sleep 0.2;
             echo '{"event":"failed","message":"one is missing","culprit":1,"lost":true}'; exit 3)"),
       Shell("one", R"(read task; echo '{"event":"joined"}')")},
      {.grace_seconds = 0.2});
  fork_that_stops = 0;
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.failure, "one is missing (ended by the launcher: one)");
  ASSERT_EQ(result.ends.size(), 2u);
  EXPECT_EQ(result.ends[1].how, "was killed by signal 9 (Killed)");
}

TEST(LauncherTest, WhoDoesNotEndIsEndedAfterTheGrace) {
  const LaunchResult result =
      Launch({Shell("zero", R"(read task; echo '{"event":"listening","host":"h","port":7}'; exit 1)"),
              Shell("one", "exec sleep 600")},
             {.grace_seconds = 0.2, .on_event = {}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.failure.find("zero exited with code 1"), std::string::npos) << result.failure;
}

}  // namespace
}  // namespace poseidon::launch
