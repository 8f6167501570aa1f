// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/progress_watch.h"

#include <gtest/gtest.h>

#include <chrono>

namespace poseidon::session {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Looks every half second; the window is 10 s, so that 100 ms of processor time are a sign of life.
class ProgressWatchTest : public ::testing::Test {
 protected:
  void Pass(int looks, std::uint64_t work_each, Duration used_each) {
    for (int i = 0; i < looks; ++i) {
      now_ = now_ + milliseconds(500);
      work_ += work_each;
      used_ = used_ + used_each;
      watch_.Look({now_, work_, used_});
    }
  }

  ProgressWatch watch_{seconds(10), seconds(1)};
  TimePoint now_;
  std::uint64_t work_ = 0;
  Duration used_{0};
  Duration children_{0};
};

TEST_F(ProgressWatchTest, CountsFromTheLastWorkAndTheLastUseOfAProcessor) {
  Pass(5, 1, milliseconds(400));
  EXPECT_EQ(watch_.quiet(), Duration{0});
  EXPECT_EQ(watch_.idle(), Duration{0});
  Pass(6, 0, milliseconds(400));
  EXPECT_EQ(watch_.quiet(), seconds(3));
  EXPECT_EQ(watch_.idle(), Duration{0});
  Pass(8, 0, milliseconds(1));
  EXPECT_EQ(watch_.quiet(), seconds(7));
  EXPECT_EQ(watch_.idle(), seconds(4));
  Pass(1, 1, milliseconds(400));
  EXPECT_EQ(watch_.quiet(), Duration{0});
  EXPECT_EQ(watch_.idle(), Duration{0});
}

TEST_F(ProgressWatchTest, ALittleProcessorTimeNowAndThenIsWork) {
  Pass(60, 0, milliseconds(6));  // 1.2 percent
  EXPECT_LT(watch_.idle(), seconds(10));
  Pass(60, 0, milliseconds(2));  // heartbeats
  EXPECT_GT(watch_.idle(), seconds(10));
}

TEST_F(ProgressWatchTest, AProgramWhoseChildrenComputeIsNotIdle) {
  const auto pass = [this](int looks, Duration by_children) {
    for (int i = 0; i < looks; ++i) {
      Pass(1, 0, Duration{0});
      watch_.LookAtChildren(children_ = children_ + by_children);
    }
  };
  Pass(1, 1, Duration{0});
  children_ = seconds(1000);  // before: a loader's workers, in other epochs
  pass(60, milliseconds(60));
  EXPECT_LE(watch_.idle(), seconds(1));
  pass(60, Duration{0});
  EXPECT_GE(watch_.idle(), seconds(20));
  // One ends for which nobody waits; another one computes.
  children_ = seconds(10);
  pass(2, milliseconds(200));
  EXPECT_EQ(watch_.idle(), Duration{0});
  EXPECT_GE(watch_.quiet(), seconds(60));
}

TEST_F(ProgressWatchTest, OwnSuspensionIsNoStandstill) {
  Pass(10, 1, milliseconds(400));
  now_ = now_ + seconds(100);
  Pass(1, 0, Duration{0});
  EXPECT_EQ(watch_.quiet(), Duration{0});
  EXPECT_EQ(watch_.idle(), Duration{0});
}

TEST_F(ProgressWatchTest, UnknownProcessorTimeIsWork) {
  Pass(1, 1, Duration{0});
  for (int i = 0; i < 100; ++i) watch_.Look({now_ = now_ + milliseconds(500), work_, std::nullopt});
  EXPECT_EQ(watch_.idle(), Duration{0});
  EXPECT_EQ(watch_.quiet(), seconds(50));
}

}  // namespace
}  // namespace poseidon::session
