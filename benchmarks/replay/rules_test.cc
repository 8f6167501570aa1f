// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/replay/rules.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(ComputeTimes, AreMeasuredAsTheyComeOut) {
  ScaledModel model;
  model.layers.resize(3);
  for (ScaledLayer& layer : model.layers) {
    layer.forward_seconds = 0.01;
    layer.backward_seconds = 0.02;
    layer.rows = 16;
  }
  const ComputeTimes times(model, {.workers = 2, .jitter = 0.05, .straggler = 1.5});
  plan::Plan plan;
  plan.layers.resize(3);
  const wire::Measured own = times.MeasuredBy(0, plan);
  const wire::Measured slow = times.MeasuredBy(1, plan);
  ASSERT_EQ(own.layers.size(), 3u);
  EXPECT_EQ(times.MeasuredBySlowest()[2].backward_seconds, slow.layers[2].backward_seconds);
  EXPECT_NEAR(own.layers[1].forward_seconds, 0.01, 0.001);
  EXPECT_NE(own.layers[1].forward_seconds, 0.01) << "jitter is in it";
  EXPECT_NEAR(slow.layers[2].backward_seconds, 0.03, 0.003);
  EXPECT_EQ(slow.layers[2].rows, 16u);
  model.layers[1].product_seconds = 0.005;
  plan.layers[1].scheme = plan::Scheme::kFactorBroadcast;
  EXPECT_NEAR(times.MeasuredBy(0, plan).layers[1].backward_seconds, 0.75 * own.layers[1].backward_seconds, 1e-9);
}

TEST(PlanningOf, RefusesTimesWhereTheModeHasNone) {
  const ScaledModel model;
  const Mode pairs = ModeNamed("ps-2017").value();
  EXPECT_EQ(PlanningOf({"time", ""}, pairs, model).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(PlanningOf({"bytes", ""}, pairs, model).ok());
}

TEST(BoundsOf, AreThoseOfOneWorkersTimes) {
  ScaledModel model;
  model.layers.resize(40);
  for (ScaledLayer& layer : model.layers) {
    layer.spec.elements = 10;
    layer.forward_seconds = 0.01;
    layer.backward_seconds = 0.02;
    layer.rows = 16;
  }
  constexpr std::uint16_t kWorkers = 4;
  constexpr std::uint64_t kFirst = 5;
  constexpr std::uint64_t kSteps = 3;
  const ComputeTimes times(model, {.workers = kWorkers, .jitter = 0.05});
  plan::Plan plan;
  plan.cluster.workers = kWorkers;
  plan.layers.resize(model.layers.size());
  const double rate = 1e15;  // the network takes no time
  const Bounds bounds = BoundsOf(model, times, plan, kWorkers, rate, kFirst, kSteps);
  double expected = 0;
  for (std::uint64_t step = kFirst; step < kFirst + kSteps; ++step) {
    double slowest = 0;
    for (std::uint16_t rank = 0; rank < kWorkers; ++rank) {
      double seconds = 0;
      for (std::size_t i = 0; i < model.layers.size(); ++i) {
        seconds += times.forward(rank, step, i) + times.backward(rank, step, i, /*factors=*/false);
      }
      slowest = std::max(slowest, seconds);
    }
    expected += slowest / kSteps;
  }
  EXPECT_NEAR(bounds.least, expected, 1e-6);
  EXPECT_NEAR(bounds.wait_free, expected, 1e-6);
}

// Each of three small tensors is whole at another worker, whose link carries 2 kB of it each way; the link of
// each other worker carries 1 kB.
TEST(BoundsOf, AreThoseOfOneWorkersLink) {
  ScaledModel model;
  model.layers.resize(3);
  for (ScaledLayer& layer : model.layers) layer.spec.elements = 250;
  const ComputeTimes times(model, {.workers = 3});
  plan::Plan plan;
  plan.cluster.workers = 3;
  plan.layers.resize(3);
  const Bounds bounds = BoundsOf(model, times, plan, 3, /*bytes_per_second=*/1000, 0, 1);
  EXPECT_NEAR(bounds.least, 4, 1e-9);
  EXPECT_NEAR(bounds.wait_free, 4, 1e-9);
  for (const std::vector<plan::NodeBytes>& layers : TrafficOf(model, plan, 3)) {
    EXPECT_EQ(layers[0] + layers[1] + layers[2], (plan::NodeBytes{4000, 4000}));
  }
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
