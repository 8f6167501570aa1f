// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/replay/rules.h"

#include <gtest/gtest.h>

#include <string>

#include "benchmarks/replay/stream.h"

namespace poseidon::replay {
namespace {

std::string TextOf(const std::vector<Action>& step) {
  std::string text;
  for (const Action& action : step) {
    text += "wfbp"[static_cast<std::size_t>(action.kind)] + std::to_string(action.layer) + " ";
  }
  return text;
}

TEST(StepOf, AwaitsEachLayerWhereItIsNeeded) {
  EXPECT_EQ(TextOf(StepOf(ModeNamed("poseidon").value(), 2)), "w0 f0 w1 f1 b1 p1 b0 p0 ");
}

TEST(StepOf, EndsWithAllLayersWhereTheModeSaysSo) {
  EXPECT_EQ(TextOf(StepOf(ModeNamed("wfbp").value(), 2)), "w0 f0 w1 f1 b1 p1 b0 p0 w0 w1 ");
}

TEST(ModeNamed, NamesTheModesThereAre) {
  const Status status = ModeNamed("fifo").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("wfbp, p3"), std::string::npos);
}

TEST(Timeline, WorkBehindWorkBeginsWhenThatWasDue) {
  Timeline timeline;
  EXPECT_EQ(timeline.Queue(2, /*idle=*/true, 10), 12);
  EXPECT_EQ(timeline.Queue(1, /*idle=*/false, 12.5), 13) << "half a second late, made up for";
  EXPECT_EQ(timeline.Queue(1, /*idle=*/true, 12.5), 14) << "busy until 13";
  EXPECT_EQ(timeline.Queue(1, /*idle=*/true, 20), 21);
}

}  // namespace
}  // namespace poseidon::replay
