// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <vector>

namespace poseidon::session {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Worker 1 of three.
class PaceTest : public ::testing::Test {
 protected:
  // A sum under way, and how it ends.
  struct Sum {
    std::shared_ptr<Pace::Numbers> numbers;
    std::promise<Status> ended;
  };
  Sum Begin(std::uint64_t step, milliseconds at, double waited = 0, const Wish& wish = {}, double on_device = 0) {
    Sum sum{pace_.Begin(Step(step), wish, TimePoint{at}, waited, on_device), {}};
    pace_.SumBegan(sum.ended.get_future().share());
    return sum;
  }
  // The others' numbers come, and with them the seconds so far in which some layer was on its way.
  static void Come(Sum& sum, double of_0, double of_2, double busy) {
    sum.numbers->values[2] += of_0;
    sum.numbers->values[4] += of_2;
    sum.numbers->busy = busy;
    sum.ended.set_value(OkStatus());
  }

  Pace pace_{Rank(1), 3};
};

TEST_F(PaceTest, ToldAreWishesAndTheSecondsComputedInTheStepBefore) {
  EXPECT_FALSE(pace_.has_begun());
  const Sum first = Begin(7, milliseconds(1000), 0.5, {.snapshot = true});
  EXPECT_THAT(first.numbers->values, ElementsAre(0, 1, 0, 0, 0, 0, 0, 0)) << "no step has ended";
  EXPECT_TRUE(pace_.has_begun());
  EXPECT_TRUE(pace_.HasBegun(Step(7))) << "once more after a refusal";
  EXPECT_FALSE(pace_.HasBegun(Step(8)));
  const Sum second = Begin(8, milliseconds(3000), 0.5, {.stop = true}, 1.25);
  EXPECT_THAT(second.numbers->values, ElementsAre(1, 0, 0, 1.5, 0, 0, 1.25, 0));
}

TEST_F(PaceTest, AWishIsThatOfAnyWorker) {
  Sum sum = Begin(0, milliseconds(0));
  sum.numbers->values[1] += 2;  // two of the others
  Come(sum, 0, 0, 0);
  ASSERT_TRUE(pace_.summed().get().ok());
  EXPECT_FALSE(pace_.wishes().stop);
  EXPECT_TRUE(pace_.wishes().snapshot);
}

TEST_F(PaceTest, AStepIsTakenOnceWhenTheNumbersOfTheNextOneAreIn) {
  Sum first = Begin(0, milliseconds(0));
  Sum second = Begin(1, milliseconds(2000), 0.5, {}, 1.25);
  second.numbers->values[5] += 0.75;  // of worker 0's device
  Sum third = Begin(2, milliseconds(3000), 0.25);
  Come(third, 0.5, 0.75, 4.0);
  EXPECT_THAT(pace_.TakeEnded(), IsEmpty()) << "an older one's are not";
  Come(first, 0, 0, 1.0);
  Come(second, 1.75, 1.0, 2.5);
  const std::vector<Pace::Ended> ended = pace_.TakeEnded();
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].pace.begin, TimePoint{milliseconds(0)});
  EXPECT_EQ(ended[0].pace.seconds, 2.0);
  EXPECT_EQ(ended[0].pace.waited, 0.5);
  EXPECT_EQ(ended[0].pace.busy, 1.5);
  EXPECT_THAT(ended[0].computed, ElementsAre(1.75, 1.5, 1.0));
  EXPECT_THAT(ended[0].on_device, ElementsAre(0.75, 1.25, 0));
  EXPECT_EQ(ended[1].pace.begin, TimePoint{milliseconds(2000)});
  EXPECT_EQ(ended[1].pace.busy, 1.5);
  EXPECT_THAT(ended[1].computed, ElementsAre(0.5, 0.75, 0.75));
  EXPECT_THAT(pace_.TakeEnded(), IsEmpty());
}

TEST_F(PaceTest, AStepWhoseSumFailedIsLeftOut) {
  Sum first = Begin(0, milliseconds(0));
  Come(first, 0, 0, 1.0);
  Sum second = Begin(1, milliseconds(1000));
  second.ended.set_value(Unavailable("ended"));
  EXPECT_THAT(pace_.TakeEnded(), IsEmpty());
}

// A worker has ended: two that go on are never more than two steps apart.
TEST_F(PaceTest, NumbersThatDoNotComeInFourStepsAreNotWaitedForAndTheNextStepHasNoBusyTime) {
  std::vector<Sum> sums;
  for (std::uint64_t step = 0; step < 4; ++step) {
    sums.push_back(Begin(step, milliseconds(1000 * static_cast<int>(step))));
    EXPECT_THAT(pace_.TakeEnded(), IsEmpty());
  }
  for (std::size_t step = 1; step < 4; ++step) Come(sums[step], 0, 0, static_cast<double>(step));
  EXPECT_THAT(pace_.TakeEnded(), IsEmpty()) << "step 0's may still come";
  Sum fifth = Begin(4, milliseconds(4000));
  const std::vector<Pace::Ended> ended = pace_.TakeEnded();
  ASSERT_EQ(ended.size(), 2u) << "steps 1 and 2: of step 0 it is not known how long layers were on their way";
  EXPECT_EQ(ended[0].pace.begin, TimePoint{milliseconds(1000)});
  EXPECT_EQ(ended[1].pace.begin, TimePoint{milliseconds(2000)});
  Come(fifth, 0, 0, 4.0);
  EXPECT_EQ(pace_.TakeEnded().size(), 1u);
}

}  // namespace
}  // namespace poseidon::session
