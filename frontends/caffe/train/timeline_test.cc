// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/timeline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/shared/gradient_checker.h"

namespace poseidon::caffe {
namespace {

// A run that goes on from iteration 15: the solver counts on, the session's steps begin with 0.
TEST(Timeline, TellsTheSolversIterationsAndBothKindsOfLayers) {
  const auto net = MakeNet("layer { name: 'in' type: 'Input' top: 'data' input_param { shape { dim: 1 } } }");
  Timeline timeline;
  timeline.BeginAt(15);
  const auto at = [](std::int64_t nanoseconds) { return TimePoint{Duration(nanoseconds)}; };
  timeline.Record({.layer = 0, .step = 15, .begin = at(5000), .end = at(6000), .label = "forward"});
  timeline.recorder()->Record(
      {.lane = TraceLane::kSend, .layer = 0, .step = 0, .begin = at(6000), .end = at(8000), .bytes = 12, .label = "push"});
  plan::LayerSpec declared;
  declared.name = "joined";
  const Result<std::string> text = timeline.Collect(nullptr, *net, {&declared, 1});
  ASSERT_TRUE(text.ok());
  const nlohmann::json trace = nlohmann::json::parse(*text);
  nlohmann::json spans = nlohmann::json::array();
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") spans.push_back(event);
  }
  EXPECT_EQ(spans, nlohmann::json::parse(R"([
      {"ph": "X", "name": "forward in", "cat": "compute", "pid": 0, "tid": 0, "ts": 0.0, "dur": 1.0,
       "args": {"step": 15, "bytes": 0}},
      {"ph": "X", "name": "push joined", "cat": "send", "pid": 0, "tid": 1, "ts": 1.0, "dur": 2.0,
       "args": {"step": 15, "bytes": 12}}])"));
}

}  // namespace
}  // namespace poseidon::caffe
