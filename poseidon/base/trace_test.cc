// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

namespace poseidon {
namespace {

using StepOfModel = std::pair<int, std::uint64_t>;

// Spans by model and step.
std::map<StepOfModel, std::size_t> Counted(const std::vector<TraceSpan>& spans) {
  std::map<StepOfModel, std::size_t> counted;
  for (const TraceSpan& span : spans) ++counted[{span.model, span.step}];
  return counted;
}

std::map<StepOfModel, std::size_t> Whole(std::initializer_list<StepOfModel> steps, std::size_t spans) {
  std::map<StepOfModel, std::size_t> whole;
  for (const StepOfModel& step : steps) whole[step] = spans;
  return whole;
}

class TraceRecorderTest : public testing::Test {
 protected:
  // `spans` of one step, each a nanosecond after the one before.
  void Record(TraceRecorder* recorder, std::uint64_t step, int spans, std::uint16_t model = 0) {
    for (int i = 0; i < spans; ++i) {
      ++now_.since_origin;
      recorder->Record({.step = step, .begin = now_, .end = now_, .model = model});
    }
  }

 private:
  TimePoint now_;
};

TEST_F(TraceRecorderTest, OfALongRunTheFirstStepsAndTheLastAreThereWhole) {
  TraceRecorder recorder({.spans = 60, .first_steps = 2});
  for (std::uint64_t step = 0; step < 1000; ++step) Record(&recorder, step, 10);
  EXPECT_EQ(Counted(recorder.Take()), Whole({{0, 0}, {0, 1}, {0, 996}, {0, 997}, {0, 998}, {0, 999}}, 10));
}

TEST_F(TraceRecorderTest, WhatFitsIsAllThereInTheOrderInWhichItEnded) {
  TraceRecorder recorder({.spans = 60});
  for (std::uint64_t step = 0; step < 6; ++step) Record(&recorder, step, 10);
  recorder.Record({.step = 2, .begin = TimePoint{Duration(5)}, .end = TimePoint{Duration(7)}});
  const std::vector<TraceSpan> spans = recorder.Take();
  for (std::size_t i = 1; i < spans.size(); ++i) EXPECT_LE(spans[i - 1].end, spans[i].end);
  // One span more than fits: the oldest step that is not among the first three made room.
  std::map<StepOfModel, std::size_t> expected = Whole({{0, 0}, {0, 1}, {0, 2}, {0, 4}, {0, 5}}, 10);
  expected[{0, 2}] = 11;
  EXPECT_EQ(Counted(spans), expected);
}

TEST_F(TraceRecorderTest, AStepThatMadeRoomDoesNotComeBackWithItsLateSpans) {
  TraceRecorder recorder({.spans = 35, .first_steps = 1});
  for (std::uint64_t step = 0; step < 5; ++step) Record(&recorder, step, 10);
  Record(&recorder, 2, 1);  // for which there is room
  EXPECT_EQ(Counted(recorder.Take()), Whole({{0, 0}, {0, 3}, {0, 4}}, 10));
}

// A receive may end two steps late: the step is still whole if it is there.
TEST_F(TraceRecorderTest, LateSpansJoinTheirStep) {
  TraceRecorder recorder({.spans = 30, .first_steps = 0});
  Record(&recorder, 7, 9);
  Record(&recorder, 8, 10);
  Record(&recorder, 7, 1);
  EXPECT_EQ(Counted(recorder.Take()), Whole({{0, 7}, {0, 8}}, 10));
}

TEST_F(TraceRecorderTest, TheFirstStepsMakeRoomForTheLast) {
  TraceRecorder recorder({.spans = 35, .first_steps = 3});
  for (std::uint64_t step = 0; step < 9; ++step) Record(&recorder, step, 10);
  EXPECT_EQ(Counted(recorder.Take()), Whole({{0, 0}, {0, 1}, {0, 8}}, 10));
}

TEST_F(TraceRecorderTest, AStepLargerThanTheBoundKeepsItsFirstSpans) {
  TraceRecorder recorder({.spans = 8, .first_steps = 1});
  Record(&recorder, 0, 10);
  Record(&recorder, 1, 10);
  EXPECT_EQ(Counted(recorder.Take()), Whole({{0, 1}}, 8));
}

TEST_F(TraceRecorderTest, KeepsNoMoreLastStepsThanAskedFor) {
  TraceRecorder recorder({.first_steps = 0, .last_steps = 2});
  for (std::uint64_t step = 0; step < 20; ++step) Record(&recorder, step, 10);
  EXPECT_EQ(Counted(recorder.Take()), Whole({{0, 18}, {0, 19}}, 10));
}

// Models count their steps on their own; the step that began first makes room, whosever it is.
TEST_F(TraceRecorderTest, ModelsHaveStepsOfTheirOwn) {
  TraceRecorder recorder({.spans = 60, .first_steps = 1});
  for (std::uint64_t step = 0; step < 50; ++step) {
    Record(&recorder, step, 10, 0);
    if (step % 2 == 0) Record(&recorder, step / 2, 10, 1);
  }
  EXPECT_EQ(Counted(recorder.Take()), Whole({{0, 0}, {1, 0}, {0, 47}, {0, 48}, {1, 24}, {0, 49}}, 10));
}

TEST_F(TraceRecorderTest, TakingBeginsAnew) {
  TraceRecorder recorder({.spans = 40, .first_steps = 2});
  for (std::uint64_t step = 0; step < 9; ++step) Record(&recorder, step, 10);
  EXPECT_EQ(recorder.Take().size(), 40u);
  EXPECT_TRUE(recorder.Take().empty());
  for (std::uint64_t step = 100; step < 109; ++step) Record(&recorder, step, 10);
  EXPECT_EQ(Counted(recorder.Take()), Whole({{0, 100}, {0, 101}, {0, 107}, {0, 108}}, 10));
}

}  // namespace
}  // namespace poseidon
