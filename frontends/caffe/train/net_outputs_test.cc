// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/net_outputs.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace poseidon::caffe {
namespace {

// As if another worker, whose numbers are all three times ours, were there; or one with more of them.
class Another final : public Collectives {
 public:
  explicit Another(bool has_more = false) : has_more_(has_more) {}
  Status SumDoubles(std::span<double> values) override {
    if (++calls == 1) {  // the count and its square
      values[0] += values[0] + (has_more_ ? 1 : 0);
      values[1] += values[1] + (has_more_ ? 2 * values[0] + 1 : 0);
    } else {
      for (double& value : values) value *= 4;
    }
    return OkStatus();
  }
  int calls = 0;

 private:
  const bool has_more_;
};

IterationReport Displayed(std::uint64_t iteration, double loss) {
  IterationReport report;
  report.iteration = iteration;
  report.loss = loss;
  report.display = true;
  report.outputs = {{"accuracy", 0.5, 0}, {"prob", 0.25, 0}, {"prob", 0.75, 0}};
  return report;
}

void Report(NetOutputs& outputs) {
  IterationReport hidden = Displayed(1, 9);
  hidden.display = false;
  outputs.OnIteration(Displayed(0, 2.5));
  outputs.OnIteration(hidden);
  outputs.OnIteration(Displayed(2, 1.5));
  TestReport test;
  test.net = 1;
  test.outputs = {{"top-5", 0.125, 0}};
  test.loss = 7;
  outputs.OnTest(test);
}

std::string WithoutTimes(const std::string& text) { return std::regex_replace(text, std::regex("\n([0-9]+),[^,]+,"), "\n$1,T,"); }

TEST(NetOutputsTest, ABlockForEveryNetWithALineForEveryDisplay) {
  NetOutputs outputs;
  Report(outputs);
  const Result<std::string> text = outputs.Text(1, nullptr);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(WithoutTimes(*text),
            "Iteration,time,loss,accuracy,prob,prob#1,\n0,T,2.5,0.5,0.25,0.75,\n2,T,1.5,0.5,0.25,0.75,\n\n"
            "Iteration,time,loss,top-5,\n0,T,0,0.125,\n\n");
}

TEST(NetOutputsTest, NumbersOfTrainingAreMeansOverTheWorkersAndTestsStayAsTheyAre) {
  NetOutputs outputs;
  Report(outputs);
  Another another;
  const Result<std::string> text = outputs.Text(2, &another);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(WithoutTimes(*text),
            "Iteration,time,loss,accuracy,prob,prob#1,\n0,T,5,1,0.5,1.5,\n2,T,3,1,0.5,1.5,\n\n"
            "Iteration,time,loss,top-5,\n0,T,0,0.125,\n\n");
}

TEST(NetOutputsTest, DifferentCountsAreRefusedBeforeTheyAreAdded) {
  NetOutputs outputs;
  Report(outputs);
  Another another(/*has_more=*/true);
  const Result<std::string> text = outputs.Text(2, &another);
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(another.calls, 1);
}

TEST(NetOutputsTest, NothingReportedIsAnEmptyFile) {
  NetOutputs outputs;
  Another another;
  EXPECT_EQ(outputs.Text(2, &another).value(), "");
}

}  // namespace
}  // namespace poseidon::caffe
