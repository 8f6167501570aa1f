// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/verdict.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <deque>
#include <string>
#include <utility>

namespace poseidon::launch {
namespace {

// As waitpid gives them.
int Exited(int code) { return code << 8; }
int KilledBy(int signal) { return signal; }

// A job with members "zero", "one", ... here, or reached by ssh.
class VerdictTest : public ::testing::Test {
 protected:
  MemberRecord& Add(std::optional<int> wait_status, std::optional<Failed> failure = {}, bool remote = false) {
    static constexpr const char* kNames[] = {"zero", "one", "two"};
    processes_.push_back({.name = kNames[processes_.size()], .argv = {"ssh"}, .task = {}, .remote = remote});
    job_.members.push_back({.member = &processes_.back(),
                            .spoke = true,
                            .wait_status = wait_status,
                            .failure = std::move(failure)});
    return job_.members.back();
  }

  std::deque<MemberProcess> processes_;  // whose places stay
  JobRecord job_;
};

constexpr auto kIsGone = [](int culprit) {
  return Failed{.message = "someone is gone", .culprit = culprit, .lost = true};
};

TEST_F(VerdictTest, WhereAllEndWellNothingFailed) {
  Add(Exited(0));
  Add(Exited(0));
  EXPECT_EQ(CommonVerdict(job_).exit_code, 0);
  EXPECT_EQ(CommonVerdict(job_).failure, "");
  EXPECT_EQ(FirstFailure(job_).exit_code, 0);
}

TEST_F(VerdictTest, WhyTheLauncherGaveUpComesFirst) {
  Add(KilledBy(SIGKILL));
  job_.start_failure = "cannot start one: no such host";
  for (const LaunchResult& result : {CommonVerdict(job_), FirstFailure(job_)}) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.failure, "cannot start one: no such host");
    EXPECT_EQ(result.ends[0].how, "was killed by signal 9 (Killed)");
  }
}

TEST_F(VerdictTest, AnAccusationCountsMoreThanADoubtAndLessThanAnotherFailure) {
  Add(Exited(3), Failed{.message = "one is silent, it cannot be told", .culprit = kNoCulprit, .lost = true});
  Add(Exited(3), Failed{.message = "zero is silent, it cannot be told", .culprit = kNoCulprit, .lost = true});
  EXPECT_EQ(CommonVerdict(job_).failure,
            "one is silent, it cannot be told; one says: zero is silent, it cannot be told");
  Add(Exited(3), Failed{.message = "zero is silent", .culprit = 0});
  EXPECT_EQ(CommonVerdict(job_).failure, "zero is silent");
  EXPECT_EQ(CommonVerdict(job_).exit_code, 3);
  job_.members[1].failure = Failed{.message = "the disk is full", .culprit = kNoCulprit, .lost = false};
  EXPECT_EQ(CommonVerdict(job_).failure, "the disk is full");
  EXPECT_EQ(CommonVerdict(job_).exit_code, 1);
}

TEST_F(VerdictTest, AKilledMemberExplainsOtherFailures) {
  Add(Exited(1), Failed{.message = "no route"});
  Add(KilledBy(SIGKILL));
  EXPECT_EQ(CommonVerdict(job_).failure, "one was killed by signal 9 (Killed)");
  EXPECT_EQ(CommonVerdict(job_).exit_code, 3);
}

TEST_F(VerdictTest, WhoElseWasEndedIsListed) {
  Add(KilledBy(SIGKILL)).ended_by_us = true;
  Add(Exited(255));
  EXPECT_EQ(CommonVerdict(job_).failure, "one exited with code 255 (ended by the launcher: zero)");
  job_.stop_requests = 1;
  EXPECT_EQ(CommonVerdict(job_).failure, "one exited with code 255");
}

TEST_F(VerdictTest, OfACommandThatReachesAnotherHostTheCodeSaysWhatHappened) {
  MemberRecord& member = Add(Exited(255), {}, /*remote=*/true);
  EXPECT_EQ(CommonVerdict(job_).failure, "zero was killed, or its host is gone: ssh exited with code 255");
  EXPECT_EQ(CommonVerdict(job_).exit_code, 3);
  member.spoke = false;
  EXPECT_EQ(CommonVerdict(job_).failure, "zero could not be started: ssh exited with code 255");
  EXPECT_EQ(CommonVerdict(job_).exit_code, 1);
}

TEST_F(VerdictTest, OfMembersApartTheFirstInTimeCounts) {
  Add(Exited(9));
  Add(Exited(7), Failed{.message = "one exited with code 7", .exit = 7});
  job_.first_failed = 1;
  LaunchResult result = FirstFailure(job_);
  EXPECT_EQ(result.failed, 1);
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.failure, "one exited with code 7");
  job_.first_failed = 0;
  result = FirstFailure(job_);
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_EQ(result.failure, "zero exited with code 9");
  job_.first_failed.reset();
  job_.members[0].ended_by_us = true;
  EXPECT_EQ(FirstFailure(job_).failure, "the job was ended");
}

TEST_F(VerdictTest, OfMembersApartTheOneThatIsBlamedCountsWhoeverWasFirst) {
  const auto fails = [](int exit, int culprit) {
    return Failed{.message = "it exited with code " + std::to_string(exit),
                  .culprit = culprit,
                  .code = StatusCode::kAborted,
                  .exit = exit,
                  .verdict = "worker 1 on host b: out of memory"};
  };
  Add(Exited(1), fails(1, 1));
  Add(std::nullopt);
  job_.first_failed = 0;
  EXPECT_EQ(Blamed(job_), 1u);
  EXPECT_TRUE(EndsByItself(job_, 1));
  job_.members[1].failure = fails(7, 1);
  EXPECT_FALSE(EndsByItself(job_, 1));
  job_.members[1].wait_status = Exited(7);
  LaunchResult result = FirstFailure(job_);
  EXPECT_EQ(result.failed, 1);
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.failure, "it exited with code 7: worker 1 on host b: out of memory");
  // It had to be ended.
  job_.members[1].ended_by_us = true;
  result = FirstFailure(job_);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.failure, "one was ended: worker 1 on host b: out of memory");
  // It ended well and left the others.
  job_.members[1] = {.member = &processes_[1], .spoke = true, .wait_status = Exited(0)};
  result = FirstFailure(job_);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.failure, "one exited with code 0: worker 1 on host b: out of memory");
  // The first says nothing, and another one does.
  Add(Exited(5), fails(5, 1));
  job_.members[0].failure = Failed{.message = "zero exited with code 1", .exit = 1};
  EXPECT_EQ(FirstFailure(job_).failed, 1);
  job_.members[2].failure->culprit = 99;
  EXPECT_EQ(FirstFailure(job_).failed, 0);
  EXPECT_EQ(FirstFailure(job_).exit_code, 1);
}

TEST_F(VerdictTest, OnlyTheAccusedAreLeftOnceAllOthersHaveEnded) {
  Add(std::nullopt);
  Add(Exited(3), kIsGone(0));
  EXPECT_TRUE(OnlyAccusedAreLeft(job_.members));
  Add(std::nullopt);
  EXPECT_FALSE(OnlyAccusedAreLeft(job_.members));
  job_.members[1].failure = kIsGone(kNoCulprit);
  EXPECT_FALSE(OnlyAccusedAreLeft(job_.members));  // here, an end would come of who is gone
  for (MemberProcess& process : processes_) process.remote = true;
  EXPECT_TRUE(OnlyAccusedAreLeft(job_.members));
  for (MemberProcess& process : processes_) process.remote = false;
  // Two are frozen, and the failure accuses one.
  job_.members[1].failure = kIsGone(0);
  EXPECT_FALSE(OnlyAccusedAreLeft(job_.members));
  job_.members[2].frozen = true;
  EXPECT_TRUE(OnlyAccusedAreLeft(job_.members));
}

TEST_F(VerdictTest, WhoDidNotComeIsToBlame) {
  Add(KilledBy(SIGKILL)).ended_by_us = true;
  Add(Exited(1));
  job_.start_failure = "zero did not join within 120 s";
  job_.missing = {0};
  const LaunchResult result = CommonVerdict(job_);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.ends[0].failure.value().culprit, 0);
  EXPECT_TRUE(result.ends[0].failure->NamesLoss());
  EXPECT_FALSE(result.ends[1].failure);
}

TEST_F(VerdictTest, WhoKeepsOthersWaitingIsStuck) {
  Add(std::nullopt);
  Add(Exited(3), kIsGone(0));
  EXPECT_FALSE(IsStuck(job_.members, 0));
  job_.members[1].failure->code = StatusCode::kDeadlineExceeded;
  EXPECT_TRUE(IsStuck(job_.members, 0));
  EXPECT_FALSE(IsStuck(job_.members, 1));
}

}  // namespace
}  // namespace poseidon::launch
