// SPDX-License-Identifier: Apache-2.0
#include "tools/watch/board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace poseidon::tools {
namespace {

using place::Figures;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<Seat> Seats(std::size_t count) {
  std::vector<Seat> seats;
  for (std::size_t i = 0; i < count; ++i) seats.push_back({std::to_string(i), "host" + std::to_string(i / 2)});
  return seats;
}

// A board that is told things at moments.
class Told {
 public:
  explicit Told(std::size_t members) : board(Seats(members)) {}
  void At(double seconds, std::size_t place, Figures figures) {
    figures.at = seconds;
    std::string line = place::EncodeFigures(figures);
    line.pop_back();
    board.Take(place, line, Moment(seconds));
  }
  std::vector<Standing> Look(double seconds) const { return board.Look(Moment(seconds)); }
  static Board::Clock::time_point Moment(double seconds) {
    return Board::Clock::time_point(std::chrono::duration_cast<Board::Clock::duration>(std::chrono::duration<double>(1000 + seconds)));
  }
  Board board;
};

// After `seconds` of steps of 0.1 s, of which a worker computes `computing`.
Figures Stepping(double seconds, double computing) {
  const auto steps = static_cast<std::uint64_t>(10 * seconds + 0.5);
  return {.steps = steps + 1, .measured = steps, .seconds = seconds, .communication = 0.01 * static_cast<double>(steps),
          .slower_workers = (0.09 - computing) * static_cast<double>(steps), .hidden = 0.9, .sent = 5000 * steps, .received = 1000 * steps,
          .link = 100e3};
}

TEST(BoardTest, RatesAreOfTheLastSeconds) {
  Told told(2);
  EXPECT_FALSE(told.Look(0)[0].told);
  EXPECT_EQ(told.Look(0)[0].remark, "has not joined a job so far");
  for (int second = 0; second <= 20; ++second) {
    told.At(second, 0, Stepping(second, 0.08));
    told.At(second, 1, Stepping(second, 0.08));
  }
  const Standing one = told.Look(20)[0];
  EXPECT_TRUE(one.told && one.up && !one.slow);
  EXPECT_NEAR(one.steps_per_second, 10, 1e-6);
  EXPECT_NEAR(one.sent_per_second, 50e3, 1e-3);
  EXPECT_NEAR(one.received_per_second, 10e3, 1e-3);
  EXPECT_NEAR(one.link_share().value(), 0.5, 1e-6);
  EXPECT_NEAR(one.step_seconds, 0.1, 1e-6);
  EXPECT_NEAR(one.computing_seconds, 0.08, 1e-6);
  EXPECT_NEAR(one.communication_share, 0.1, 1e-6);
  EXPECT_NEAR(one.slower_share, 0.1, 1e-6);
  EXPECT_EQ(one.remark, "");
}

TEST(BoardTest, WhoComputesLongerThanTheMiddleIsSlow) {
  Told told(4);
  for (int second = 0; second <= 6; ++second) {
    for (std::size_t place = 0; place < 4; ++place) told.At(second, place, Stepping(second, place == 2 ? 0.09 : 0.06));
  }
  const std::vector<Standing> all = told.Look(6);
  for (std::size_t place = 0; place < 4; ++place) EXPECT_EQ(all[place].slow, place == 2) << place;
  EXPECT_EQ(all[2].remark, "slow: computes 90.0 ms a step, median 60.0 ms");
  Told two(2);
  for (int second = 0; second <= 6; ++second) {
    for (std::size_t place = 0; place < 2; ++place) two.At(second, place, Stepping(second, place == 1 ? 0.09 : 0.08));
  }
  EXPECT_FALSE(two.Look(6)[1].slow);  // an eighth longer
}

TEST(BoardTest, WhoeverTheOthersWaitForIsSlow) {
  Told told(3);
  for (int second = 0; second <= 4; ++second) {
    Figures waiting = Stepping(0.5, 0.06);
    waiting.blocked = true;
    waiting.waits_on = {1};
    waiting.waits_for = "the gradient of layer 'ip1' in step 6";
    told.At(second, 0, waiting);
    told.At(second, 2, waiting);
    Figures late = Stepping(0.5, 0.06);
    late.busy_with = "evaluates";
    told.At(second, 1, late);
  }
  const std::vector<Standing> all = told.Look(4);
  EXPECT_EQ(all[0].remark, "waits for rank 1: the gradient of layer 'ip1' in step 6");
  EXPECT_FALSE(all[0].slow || all[2].slow);
  EXPECT_TRUE(all[1].slow);
  EXPECT_EQ(all[1].remark, "slow: rank 0, rank 2 wait for it; evaluates");
}

TEST(BoardTest, AMomentOfWaitingIsNoRemark) {
  Told told(2);
  for (int second = 0; second <= 3; ++second) {
    Figures figures = Stepping(second, 0.08);
    figures.blocked = true;
    figures.waits_on = {static_cast<std::uint16_t>(second % 2)};
    figures.waits_for = "the gradient of layer 'ip1' in step 6";
    told.At(second, 0, figures);
    told.At(second, 1, figures);
  }
  for (const Standing& one : told.Look(3)) EXPECT_EQ(one.remark, "");
}

TEST(BoardTest, WhoIsNotHeardOrHasEndedIsNotUp) {
  Told told(3);
  for (std::size_t place = 0; place < 3; ++place) told.At(0, place, Stepping(0, 0.08));
  told.At(7, 1, Stepping(7, 0.08));
  told.board.End(2, "was killed by signal 9 (Killed)");
  std::vector<Standing> all = told.Look(7);
  EXPECT_EQ(all[0].remark, "has said nothing for 7 s");
  EXPECT_TRUE(all[0].up && all[1].up && !all[2].up);
  EXPECT_EQ(all[2].remark, "was killed by signal 9 (Killed)");
  EXPECT_FALSE(told.Look(11)[0].up);
}

TEST(BoardTest, ASecondJobOfAProcessBeginsAnew) {
  Told told(1);
  for (int second = 0; second <= 9; ++second) told.At(second, 0, Stepping(second, 0.08));
  told.At(10, 0, Stepping(0, 0.08));
  told.At(12, 0, Stepping(1, 0.08));
  EXPECT_NEAR(told.Look(12)[0].steps_per_second, 5, 1e-6);
}

TEST(BoardTest, WhatIsNoLineChangesNothing) {
  Told told(1);
  told.board.Take(0, "figures 1 what", Told::Moment(0));
  told.board.Take(7, "figures 1 1 1 1 1 1 1 1 1 1 1 1", Told::Moment(0));
  told.board.End(7, "exited with code 0");
  EXPECT_FALSE(told.Look(0)[0].told);
  Figures stuck{.steps = 1, .blocked = true, .waits_on = {0, 7, 65535}, .waits_for = "x"};
  for (int second = 0; second < 5; ++second) told.At(second, 0, stuck);
  EXPECT_EQ(told.Look(5)[0].remark, "");  // for itself, and for nobody that is there
}

}  // namespace
}  // namespace poseidon::tools
