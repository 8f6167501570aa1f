// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace poseidon::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr MemberId kA{0}, kB{1}, kC{2};

// Three workers, who report every half second while nothing moves.
class ProgressTest : public ::testing::Test {
 protected:
  static Wait Gradient(const std::string& layer, std::uint64_t step, std::vector<MemberId> on) {
    const std::string of = "layer '" + layer + "' in step " + std::to_string(step);
    return {"the gradient of " + of, step, std::move(on), of};
  }
  static Wait Mean(const std::string& layer, std::uint64_t step, std::vector<MemberId> on) {
    const std::string of = "layer '" + layer + "' in step " + std::to_string(step);
    return {"the mean gradient of " + of, step, std::move(on), of};
  }
  static ProgressReport Waiting(std::vector<Wait> waits = {}) {
    return {.idle = std::chrono::hours(1), .blocked = true, .waits = std::move(waits)};
  }
  static Wait Collective(std::uint64_t number, std::vector<MemberId> on) {
    const std::string part = "its part in collective " + std::to_string(number);
    return {part, 0, std::move(on), part};
  }
  // A program that waits in a call for what is made of the parts that these are of.
  static ProgressReport AtResultsOf(std::vector<Wait> owed, std::vector<Wait> waits = {}) {
    ProgressReport report = Waiting(std::move(waits));
    report.owed = std::move(owed);
    return report;
  }
  // Time passes until nothing has moved for `until`, or the job ends.
  void Still(Duration until) {
    while (still_ < until && !ended_) {
      still_ = still_ + milliseconds(500);
      now_ = now_ + milliseconds(500);
      for (auto& [member, report] : says_) {
        report.at = now_;
        report.quiet = still_;
        if (working_.contains(member)) report.idle = Duration{0};
        state_ = Reported(std::move(state_), member, report);
      }
      ProgressJudgement judgement = JudgeProgress(std::move(state_), standing_, now_);
      state_ = std::move(judgement.state);
      if (!judgement.remark.empty()) remarks_.emplace_back(ToSeconds(still_), judgement.remark);
      if (judgement.end) ended_ = judgement.end;
    }
  }
  void Moves() { still_ = Duration{0}; }
  double StoodStill() const { return ToSeconds(still_); }

  ProgressState state_ = BeginProgress({}, {{.id = kA, .rank = Rank(0), .host = "a"},
                                            {.id = kB, .rank = Rank(1), .host = "b"},
                                            {.id = kC, .rank = Rank(2), .host = "c"}});
  Standing standing_;
  std::map<MemberId, ProgressReport> says_;
  std::set<MemberId> working_;
  Duration still_{0};
  TimePoint now_;
  std::vector<std::pair<double, std::string>> remarks_;
  std::optional<ProgressJudgement::End> ended_;
};

TEST_F(ProgressTest, AWorkerThatIsAliveButStuckIsNamedAndThenBlamed) {
  says_[kA] = Waiting({Gradient("ip1", 17, {kB})});
  says_[kC] = Waiting();
  says_[kB] = {.idle = seconds(60)};  // its own disk does not answer
  Still(seconds(100));
  ASSERT_TRUE(ended_);
  EXPECT_EQ(StoodStill(), 60);
  EXPECT_EQ(ended_->culprit, kB);
  EXPECT_EQ(ended_->reason,
            "has not brought the gradient of layer 'ip1' in step 17, for which worker 0 on host a and worker 2 on host "
            "c waited 60.0 s: it is alive but has used no processor for 60.0 s");
  ASSERT_EQ(remarks_.size(), 5u);  // after 2, 4, 8, 16, 32 s
  EXPECT_EQ(remarks_[0].first, 2);
  EXPECT_THAT(remarks_[0].second, HasSubstr("worker 1 on host b has not brought the gradient of layer 'ip1' in step 17"));
}

TEST_F(ProgressTest, AWorkerThatComputesIsOnlyRemarkedOnForTenTimesAsLong) {
  says_[kA] = Waiting({Gradient("ip1", 17, {kB})});
  says_[kC] = Waiting();
  says_[kB] = {};
  working_ = {kB};
  Still(seconds(599));
  EXPECT_FALSE(ended_);
  EXPECT_THAT(remarks_.at(0).second, HasSubstr("it computes"));
  Still(seconds(700));
  EXPECT_EQ(StoodStill(), 600);
  EXPECT_EQ(ended_->culprit, kB);
}

TEST_F(ProgressTest, WhoSaysWhatItIsBusyWithIsBelievedWithoutProcessorTime) {
  says_[kA] = Waiting({Gradient("ip1", 17, {kB})});
  says_[kC] = Waiting();
  says_[kB] = {.idle = std::chrono::hours(1), .busy_with = "evaluates"};
  Still(seconds(599));
  EXPECT_FALSE(ended_);
  EXPECT_THAT(remarks_.at(0).second, HasSubstr("it evaluates"));
}

TEST_F(ProgressTest, LongStepsOfOneWorkerAreNotRemarkedOnInEachOfThem) {
  says_[kA] = Waiting({Gradient("ip1", 17, {kB})});
  says_[kC] = Waiting();
  says_[kB] = {};
  working_ = {kB};
  for (int step = 0; step < 50; ++step) {
    Still(seconds(3));
    Moves();
  }
  EXPECT_EQ(remarks_.size(), 1u);
}

// Worker 2 evaluated for long, brought its last gradient and left; the others have it and compute.
TEST_F(ProgressTest, AReportFromBeforeTheLastMoveSaysNothing) {
  says_[kA] = Waiting({Gradient("ip1", 17, {kC})});
  says_[kB] = Waiting();
  says_[kC] = {.idle = seconds(5), .busy_with = "evaluates"};
  Still(seconds(5));
  standing_.left = {kC};
  now_ = now_ + milliseconds(1500);
  state_ = Reported(std::move(state_), kC, {.at = now_, .quiet = milliseconds(1400), .blocked = true});
  const ProgressJudgement judgement = JudgeProgress(state_, standing_, now_);
  EXPECT_FALSE(judgement.end);
  EXPECT_EQ(judgement.remark, "");
}

TEST_F(ProgressTest, WhereAnyMemberMovesNobodyIsStuck) {
  says_[kA] = Waiting({Gradient("ip1", 17, {kB})});
  says_[kB] = {.idle = seconds(60)};
  Still(seconds(1000));  // worker 2 does not report: bytes still reach it
  EXPECT_FALSE(ended_);
  EXPECT_TRUE(remarks_.empty());
}

TEST_F(ProgressTest, AStandstillWithoutAnybodyWhoWaitsNeverEnds) {
  for (const MemberId member : {kA, kB, kC}) says_[member] = {.idle = seconds(60)};
  Still(seconds(10'000));
  EXPECT_FALSE(ended_);
  EXPECT_TRUE(remarks_.empty());
}

TEST_F(ProgressTest, AWorkerThatHasLeftWhileOthersLackItsGradientEndsTheJobAtOnce) {
  says_[kA] = Waiting({Gradient("ip1", 17, {kC})});
  says_[kB] = Waiting();
  says_[kC] = Waiting();
  standing_.left = {kC};
  Still(seconds(100));
  ASSERT_TRUE(ended_);
  EXPECT_EQ(StoodStill(), 1);
  EXPECT_EQ(ended_->culprit, kC);
  EXPECT_THAT(ended_->reason, HasSubstr("has left the job without the gradient of layer 'ip1' in step 17"));
}

TEST_F(ProgressTest, WorkersThatPushDifferentLayersEndAndBothAreSaid) {
  says_[kA] = Waiting({Gradient("a", 3, {kB, kC})});
  says_[kB] = Waiting({Gradient("b", 3, {kA})});
  says_[kC] = AtResultsOf({Mean("b", 3, {kB})});
  Still(seconds(100));
  ASSERT_TRUE(ended_);
  EXPECT_EQ(StoodStill(), 60);
  EXPECT_EQ(ended_->culprit, kA);
  EXPECT_THAT(ended_->reason, HasSubstr("waits itself for"));
  EXPECT_THAT(ended_->reason, HasSubstr("push different layers"));
}

// Worker 0 is missed, and waits in a collective. What worker 2 lacks of worker 1 is none of its business.
TEST_F(ProgressTest, WhatTheMissedOneWaitsForIsNotAThirdMembersWait) {
  const auto reason = [&](std::vector<Wait> owed) {
    state_ = BeginProgress({}, state_.members);
    ended_.reset();
    Moves();
    says_[kA] = Waiting();
    says_[kA].owed = std::move(owed);
    says_[kB] = Waiting({Gradient("a", 3, {kA})});
    says_[kC] = Waiting({Gradient("b", 3, {kB})});
    Still(seconds(100));
    return ended_.value().reason;
  };
  EXPECT_THAT(reason({}), HasSubstr(": it waits itself; workers push"));
  EXPECT_EQ(ended_->culprit, kA);
  EXPECT_THAT(reason({{"its part in collective 4", 4, {kC}, "its part in collective 4"}}),
              HasSubstr(": it waits itself for its part in collective 4 from worker 2 on host c; workers push"));
  EXPECT_EQ(ended_->culprit, kA);
  // It waits for the mean of what worker 2 lacks: worker 1 keeps them both waiting.
  EXPECT_THAT(reason({Mean("b", 3, {kC})}),
              HasSubstr("has not brought the gradient of layer 'b' in step 3, for which worker 0 on host a and worker 2 on "
                        "host c waited 60.0 s: it waits itself for the gradient of layer 'a' in step 3 from worker 0 on "
                        "host a; workers push"));
  EXPECT_EQ(ended_->culprit, kB);
}

// ---- cycles of waits

TEST_F(ProgressTest, WhoCallsACollectiveWhileTheOthersTrainHasLeftTheCommonOrder) {
  says_[kA] = AtResultsOf({Mean("ip1", 17, {kB})}, {Collective(4, {kA, kB})});
  says_[kB] = AtResultsOf({Mean("ip1", 17, {kB})}, {Gradient("ip1", 17, {kC})});
  says_[kC] = AtResultsOf({Collective(4, {kA})});
  Still(seconds(100));
  EXPECT_EQ(StoodStill(), 60);
  EXPECT_EQ(ended_.value().culprit, kC);
  EXPECT_EQ(ended_->reason,
            "has not brought the gradient of layer 'ip1' in step 17, for which worker 0 on host a and worker 1 on host b "
            "waited 60.0 s: it waits itself for its part in collective 4 from worker 0 on host a and worker 1 on host b; "
            "workers push different layers or call different collectives, and more than half of them have brought this");
  EXPECT_THAT(remarks_.at(0).second, HasSubstr("worker 2 on host c has not brought the gradient of layer 'ip1'"));
}

TEST_F(ProgressTest, WhoTrainsOnWhileTheOthersCallACollectiveHasLeftTheCommonOrder) {
  says_[kA] = AtResultsOf({Mean("ip1", 17, {kB})}, {Collective(4, {kA})});
  says_[kB] = AtResultsOf({Collective(4, {kA})}, {Gradient("ip1", 17, {kB, kC})});
  says_[kC] = AtResultsOf({Collective(4, {kA})});
  Still(seconds(100));
  EXPECT_EQ(ended_.value().culprit, kA);
  EXPECT_THAT(ended_->reason, HasSubstr("has not brought its part in collective 4, for which worker 1 on host b and worker 2 "
                                        "on host c waited 60.0 s: it waits itself for the gradient of layer 'ip1'"));
}

TEST_F(ProgressTest, WhoTrainsOnWhileTheOthersDeclareAModelHasLeftTheCommonOrder) {
  standing_.waits = {{"its layers of model 1", 0, {kB}}};
  says_[kA] = Waiting({Gradient("ip1", 17, {kA, kC})});
  says_[kB] = AtResultsOf({Mean("ip1", 17, {kA})});
  says_[kC] = Waiting();
  Still(seconds(100));
  EXPECT_EQ(ended_.value().culprit, kB);
  EXPECT_THAT(ended_->reason, HasSubstr("its layers of model 1, for which worker 0 on host a and worker 2 on host c waited"));
}

TEST_F(ProgressTest, WhoComputesOnItsWayIntoACycleIsWaitedForFirst) {
  says_[kA] = AtResultsOf({Mean("ip1", 17, {kB})}, {Collective(4, {kA, kB})});
  says_[kB] = {};
  says_[kC] = AtResultsOf({Collective(4, {kA})}, {Gradient("ip1", 17, {kB, kC})});
  working_ = {kB};
  Still(seconds(300));
  EXPECT_FALSE(ended_);
  EXPECT_THAT(remarks_.at(0).second, HasSubstr("worker 1 on host b has not brought"));
}

TEST_F(ProgressTest, WhereAsManyAreHereAsThereNobodyIsBlamed) {
  says_[kA] = AtResultsOf({Mean("ip1", 17, {kA})}, {Gradient("ip1", 17, {kB})});
  says_[kB] = AtResultsOf({Collective(4, {kB})}, {Collective(4, {kA})});
  says_[kC] = {.idle = seconds(60)};  // a server
  state_.members[2] = {.id = kC, .role = Role::kServer, .host = "c"};
  Still(seconds(100));
  EXPECT_EQ(StoodStill(), 60);
  EXPECT_EQ(ended_.value().culprit, std::nullopt);
  for (const char* const part : {"worker 0 on host a", "worker 1 on host b", "waits itself for", "collective 4", "ip1",
                                 "it cannot be told who has left the common order"}) {
    EXPECT_THAT(ended_->reason, HasSubstr(part));
  }
}

// Workers 0 and 1 share a host, whose sum worker 0 makes. Worker 2 lacks that sum; worker 1 alone holds it up.
TEST_F(ProgressTest, WhoMakesTheSumOfItsHostIsNotBlamedForAShareThatItLacks) {
  says_[kA] = Waiting({Gradient("ip1", 4, {kB}), Collective(0, {kA, kC})});
  says_[kB] = AtResultsOf({Collective(0, {kA})});
  says_[kC] = AtResultsOf({Mean("ip1", 4, {kC})}, {Gradient("ip1", 4, {kA})});
  Still(seconds(100));
  EXPECT_EQ(ended_.value().culprit, kB);
  EXPECT_THAT(ended_->reason, HasSubstr("the gradient of layer 'ip1' in step 4, for which worker 0 on host a and worker 2 "
                                        "on host c waited"));
}

TEST_F(ProgressTest, APartThatWasSentAndHasNotArrivedIsNobodysFault) {
  says_[kA] = AtResultsOf({Mean("ip1", 4, {kA})}, {Gradient("ip1", 4, {kB})});
  says_[kB] = AtResultsOf({Mean("ip1", 4, {kA})});
  says_[kC] = AtResultsOf({Mean("ip1", 4, {kA})});
  Still(seconds(100));
  EXPECT_EQ(ended_.value().culprit, std::nullopt);
  EXPECT_EQ(ended_->reason, "the gradient of layer 'ip1' in step 4 was sent by worker 1 on host b and has not arrived at "
                            "worker 0 on host a for 60.0 s: a message was lost");
}

TEST_F(ProgressTest, WhoWaitsItselfIsNotBlamedWhereAnotherHoldsItUp) {
  // Worker 1 leads a host: it lacks worker 2's share, and therefore worker 0 lacks worker 1's sum.
  says_[kA] = Waiting({Gradient("ip1", 4, {kB})});
  says_[kB] = Waiting({Gradient("ip1", 4, {kC})});
  says_[kC] = {.idle = seconds(60)};
  Still(seconds(100));
  EXPECT_EQ(ended_->culprit, kC);
}

TEST_F(ProgressTest, ASumThatIsOwedIsAskedOfItsOwner) {
  ProgressReport waiting = Waiting();
  waiting.owed = {{"the mean gradient of layer 'ip1' in step 4", 4, {kC}}};
  says_[kA] = waiting;
  says_[kB] = Waiting();
  says_[kC] = Waiting();
  Still(seconds(100));
  EXPECT_EQ(ended_->culprit, kC);
  EXPECT_THAT(ended_->reason, HasSubstr("the mean gradient of layer 'ip1' in step 4"));
}

TEST_F(ProgressTest, AStandstillThatNobodyCanExplainEndsToo) {
  for (const MemberId member : {kA, kB, kC}) says_[member] = Waiting();
  Still(seconds(100));
  ASSERT_TRUE(ended_);
  EXPECT_EQ(ended_->culprit, std::nullopt);
  EXPECT_THAT(ended_->reason, HasSubstr("a message was lost"));
}

TEST_F(ProgressTest, WhatTheCoordinatorLacksIsWaitedForWhereSomebodyIsBlocked) {
  standing_.waits = {{"its layers of model 0", 0, {kB}}};
  for (const MemberId member : {kA, kB, kC}) says_[member] = {.idle = seconds(60)};
  Still(seconds(200));
  EXPECT_FALSE(ended_);
  says_[kA].blocked = true;
  Still(seconds(300));
  EXPECT_EQ(ended_->culprit, kB);
  EXPECT_THAT(ended_->reason, HasSubstr("its layers of model 0"));
}

}  // namespace
}  // namespace poseidon::coordinator
