// SPDX-License-Identifier: Apache-2.0
// What a run says while it lasts, as lines and as metrics.
#include "frontends/caffe/train/reporter.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "frontends/caffe/data/test_database.h"

namespace poseidon::caffe {
namespace {

using nlohmann::json;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Lines final : public Output {
 public:
  void Print(const std::string& text) override { printed.push_back(text); }
  void Progress(const std::string&) override {}
  std::size_t width() const override { return 80; }
  void Log(LogLevel, std::string_view line) override { logged.emplace_back(line); }
  void PrintLog(const std::string&) override {}
  std::vector<std::string> printed;
  std::vector<std::string> logged;
};

class ReporterTest : public ::testing::Test {
 protected:
  ReporterTest() {
    Reporter::Options options;
    options.metrics_path = folder_ / "metrics.jsonl";
    options.max_iter = 100;
    options.images_per_iteration = 1;
    reporter_.Begin(std::move(options));
  }

  void Iterate(std::uint64_t iteration, double loss, std::vector<OutputValue> outputs = {}, bool closing = false) {
    IterationReport report;
    report.iteration = iteration;
    report.loss = report.smoothed_loss = loss;
    report.rate = closing ? 0 : 0.5;
    report.seconds = 0.001;
    report.display = true;
    report.closing = closing;
    report.outputs = std::move(outputs);
    reporter_.OnIteration(report);
  }

  std::vector<json> Metrics() {
    std::vector<json> metrics;
    std::ifstream file(folder_ / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) metrics.push_back(json::parse(line));
    return metrics;
  }

  TestFolder folder_;
  Lines lines_;
  Reporter reporter_{lines_, true};
};

// In a job of several each says what its device did, of the steps that have been metered.
TEST(GpuUtilization, IsTheDevicesShareOfTheTime) {
  Lines lines;
  Reporter alone(lines, true), of_three(lines, true);
  alone.Begin({});
  Reporter::Options options;
  session::Statistics counted;
  options.communication = [&] { return counted; };
  of_three.Begin(std::move(options));
  EXPECT_THAT(alone.gpu_utilization({}), IsEmpty());
  IterationReport report;
  report.seconds = 0.001;
  report.device_seconds = 0.00075;
  for (Reporter* reporter : {&alone, &of_three}) reporter->OnIteration(report);
  EXPECT_THAT(alone.gpu_utilization({}), ElementsAre(::testing::Le(1.0)));
  EXPECT_THAT(of_three.gpu_utilization(counted.overlap), IsEmpty()) << "nothing is metered yet";
  EXPECT_DOUBLE_EQ(of_three.TakeDeviceSeconds(), 0.00075);
  EXPECT_EQ(of_three.TakeDeviceSeconds(), 0);

  counted.overlap.AddStep({.seconds = 1}, {1, 1, 1}, {0.75, 0.5, 0});
  counted.overlap.AddStep({.seconds = 3}, {1, 1, 1}, {0.75, 0.5, 4.5});
  EXPECT_THAT(of_three.gpu_utilization(counted.overlap), ElementsAre(DoubleNear(0.375, 1e-9), DoubleNear(0.25, 1e-9), 1.0));
}

TEST_F(ReporterTest, OutputsOfTheTrainingNetArePrintedAndRecorded) {
  Iterate(0, 3, {{"accuracy", 0.25, 0}, {"loss1", 2, 0.3}, {"loss2", 2.4, 1}});
  ASSERT_THAT(lines_.printed, SizeIs(2));
  EXPECT_EQ(lines_.printed[1],
            "iteration 0, outputs of the training net: accuracy = 0.25, loss1 = 2 (* 0.3 = 0.6 loss), loss2 = 2.4 (* 1 = 2.4 loss)");
  const json metric = Metrics().at(0);
  EXPECT_EQ(metric["outputs"], (json{{"accuracy", 0.25}, {"loss1", 2}, {"loss2", 2.4}}));
}

// parse_log.sh takes every ", loss = " for the loss of an iteration.
TEST_F(ReporterTest, OutputsAreLeftToCaffesLogWhereItIsInTheSameFile) {
  Reporter::Options options;
  options.outputs_in_log = true;
  reporter_.Begin(std::move(options));
  Iterate(3, 1.5, {{"accuracy", 0.5, 0}, {"loss", 1.5, 1}});
  reporter_.OnTest({.iteration = 3, .outputs = {{"accuracy", 0.5, 0}, {"loss", 1.5, 1}}});
  EXPECT_THAT(lines_.printed, ElementsAre(HasSubstr("iteration 3, loss 1.5, lr")));
}

TEST_F(ReporterTest, ALossThatIsAloneTakesNoLineOfItsOwn) {
  Iterate(0, 3, {{"loss", 3, 1}});
  EXPECT_THAT(lines_.printed, SizeIs(1));
  EXPECT_EQ(Metrics().at(0)["outputs"], (json{{"loss", 3}}));
}

TEST_F(ReporterTest, AnOutputOfSeveralNumbersIsAList) {
  std::vector<OutputValue> outputs = {{"classes", 0.5, 0}, {"classes", 0.75, 0}, {"loss", 3, 1}};
  Iterate(0, 3, outputs);
  EXPECT_THAT(lines_.printed.back(), HasSubstr("classes = 0.5 0.75, loss = 3 (* 1 = 3 loss)"));
  EXPECT_EQ(Metrics().at(0)["outputs"]["classes"], (json{0.5, 0.75}));
  TestReport test;
  test.outputs = outputs;
  reporter_.OnTest(test);
  EXPECT_EQ(Metrics().at(1)["outputs"]["classes"], (json{0.5, 0.75}));
  EXPECT_THAT(reporter_.last_test().at("classes"), ElementsAre(0.5, 0.75));
  // Thousands of numbers are no line for a terminal.
  Iterate(1, 3, std::vector<OutputValue>(4000, {"score", 1, 0}));
  EXPECT_THAT(lines_.printed.back(), HasSubstr("... (4000 numbers)"));
  EXPECT_LT(lines_.printed.back().size(), 200u);
}

TEST_F(ReporterTest, TheClosingPassHasNoRate) {
  Iterate(0, 3);
  Iterate(1, 2, {}, /*closing=*/true);
  EXPECT_EQ(Metrics().at(0)["rate"], 0.5);
  EXPECT_FALSE(Metrics().at(1).contains("rate"));
}

TEST_F(ReporterTest, ALossThatDivergesIsHintedAtOnce) {
  Iterate(0, 2.3);
  Iterate(1, 2.1);
  EXPECT_THAT(lines_.logged, IsEmpty());
  Iterate(2, 87.3365);
  Iterate(3, 87.3365);
  ASSERT_THAT(lines_.logged, SizeIs(1));
  EXPECT_THAT(lines_.logged[0], HasSubstr("the loss is 87.3365 at iteration 2"));
  EXPECT_THAT(lines_.logged[0], HasSubstr("a base_lr below 0.5"));
}

TEST_F(ReporterTest, ALossFarAboveTheFirstIsHintedAtOnce) {
  Iterate(0, 2.3);
  Iterate(1, 60);
  EXPECT_THAT(lines_.logged, IsEmpty()) << "one displayed iteration may be an accident";
  Iterate(2, 55);
  Iterate(3, 55);
  ASSERT_THAT(lines_.logged, SizeIs(1));
  EXPECT_THAT(lines_.logged[0], HasSubstr("23.9 times the first one"));
}

}  // namespace
}  // namespace poseidon::caffe
