// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/logs/csv.h"
#include "tools/logs/log_lines.h"
#include "tools/logs/training_chart.h"
#include "tools/logs/training_log.h"

namespace poseidon::logs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Two tests and two displays, a notice of ours and an empty line between them, and a last row that was cut.
constexpr char kLog[] = R"(training LeNet with 1 worker
I1231 23:59:58.000000  4711 caffe.cpp:248] Starting Optimization
I1231 23:59:58.500000  4711 solver.cpp:272] Solving LeNet
I1231 23:59:58.500001  4711 solver.cpp:273] Learning Rate Policy: inv
I1231 23:59:58.500002  4711 solver.cpp:330] Iteration 0, Testing net (#0)
I1231 23:59:59.000000  4711 solver.cpp:397]     Test net output #0: accuracy = 0.09
I1231 23:59:59.000001  4711 solver.cpp:397]     Test net output #1: loss = 2.3 (* 1 = 2.3 loss)

notice: nothing
I1231 23:59:59.500000  4711 solver.cpp:218] Iteration 0 (0 iter/s, 0.5s/100 iters), loss = 2.5
I1231 23:59:59.500000  4711 solver.cpp:237]     Train net output #0: loss = 2.25 (* 1 = 2.25 loss)
I1231 23:59:59.500000  4711 sgd_solver.cpp:105] Iteration 0, lr = 0.01
I0101 00:00:00.250000  4711 solver.cpp:218] Iteration 100 (12.3 iter/s, 8.1s/100 iters), loss = 0.5
I0101 00:00:00.250000  4711 solver.cpp:237]     Train net output #0: loss = 1e-05 (* 1 = 1e-05 loss)
I0101 00:00:00.250000  4711 sgd_solver.cpp:105] Iteration 100, lr = 0.00992565
I0101 00:00:00.250000  4711 solver.cpp:330] Iteration 100, Testing net (#0)
I0101 00:00:00.500000  4711 solver.cpp:397]     Test net output #0: accuracy = 0.75
I0101 00:00:00.500000  4711 solver.cpp:397]     Test net output #1: loss = 0.6 (* 1 = 0.6 loss)
I0101 00:00:00.750000  4711 solver.cpp:330] Iteration 200, Testing net (#0)
I0101 00:00:00.750000  4711 solver.cpp:397]     Test net output #0: accuracy = 0.8)";

constexpr char kMetrics[] = R"({"kind":"test","iteration":0,"net":0,"outputs":{"accuracy":0.09,"loss":2.3},"seconds":0.4,"elapsed":0.5}
{"kind":"train","iteration":0,"loss":2.5,"seconds":0.1,"elapsed":1.0,"rate":0.01,"outputs":{"loss":2.25,"prob":[0.1,0.2]}}
{"kind":"train","iteration":100,"loss":0.5,"seconds":0.8,"elapsed":1.75,"rate":0.005,"outputs":{"loss":0.5,"prob":[0.1,0.3]}}
{"kind":"snapshot","iteration":100,"state":"s","ok":true,"message":""}
{"kind":"test","iteration":100,"net":0,"outputs":{"accuracy":0.75,"loss":0.6},"seconds":0.4,"elapsed":2.0}
{"kind":"train","iteration":100,"loss":0.25,"seconds":0.9,"elapsed":2.25,"outputs":{"loss":0.25,"prob":[0,1]}}
{"kind":"train","iter)";

class LogsTest : public ::testing::Test {
 protected:
  LogsTest() : folder_(std::filesystem::path(::testing::TempDir()) / ("logs_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~LogsTest() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  TrainingLog Read(const std::string& text) { return ReadTrainingLog(Write("a.log", text)).value(); }

  std::filesystem::path folder_;
};

// Caffe built with glog 0.6 or later: the two logs differ in their years alone.
std::string WithYears(std::string log) {
  for (const auto& [date, with_year] : {std::pair("\nI1231 ", "\nI20261231 "), std::pair("\nI0101 ", "\nI20270101 ")}) {
    for (std::size_t at = log.find(date); at != std::string::npos; at = log.find(date, at + 1)) {
      log.replace(at, std::string_view(date).size(), with_year);
    }
  }
  return log;
}

TEST_F(LogsTest, ALogWithYearsHasTheSameRows) {
  const TrainingLog log = Read(WithYears(kLog)), without = Read(kLog);
  EXPECT_EQ(Csv(log.train, ','), Csv(without.train, ','));
  EXPECT_EQ(Csv(log.test, ','), Csv(without.test, ','));
  EXPECT_EQ(log.seconds, without.seconds);
}

TEST_F(LogsTest, ALogOfCaffesHasTheRowsOfParseLog) {
  const TrainingLog log = Read(kLog);
  EXPECT_EQ(Csv(log.train, ','),
            "NumIters,Seconds,LearningRate,loss\r\n"
            "0.0,1.0,0.01,2.25\r\n"
            "100.0,1.75,0.01,1e-05\r\n");
  EXPECT_EQ(Csv(log.test, ';'),
            "NumIters;Seconds;LearningRate;accuracy;loss\r\n"
            "0.0;0.5;0.00992565;0.09;2.3\r\n"
            "100.0;2.0;0.00992565;0.75;0.6\r\n");
  EXPECT_THAT(log.seconds, ElementsAre(2e-6, 1, 1, 1.75, 1.75, 1.75, 2.25));
  ASSERT_THAT(log.losses, SizeIs(2));
  EXPECT_EQ(log.losses[1].value, 0.5);
  ASSERT_THAT(log.rates, SizeIs(2));
  EXPECT_EQ(log.rates[1].seconds, 1.75);
}

TEST_F(LogsTest, MetricsHaveTheRowsOfTheirLog) {
  const TrainingLog log = Read(kMetrics);
  EXPECT_EQ(Csv(log.train, ','),
            "NumIters,Seconds,LearningRate,loss,prob\r\n"
            "0.0,1.0,0.01,2.25,0.2\r\n"
            "100.0,1.75,0.01,0.5,0.3\r\n");
  EXPECT_EQ(Csv(log.test, ','),
            "NumIters,Seconds,LearningRate,accuracy,loss\r\n"
            "0.0,0.5,0.005,0.09,2.3\r\n"
            "100.0,2.0,0.005,0.75,0.6\r\n");
  EXPECT_THAT(log.losses, SizeIs(3));
  EXPECT_THAT(log.rates, SizeIs(2));
}

TEST_F(LogsTest, ASingleDisplayHasItsRow) {
  const std::string text(kLog);
  const TrainingLog log = Read(text.substr(0, text.find("I0101")));
  EXPECT_THAT(log.train, SizeIs(1));
  EXPECT_THAT(log.test, SizeIs(1));
  EXPECT_TRUE(std::isnan(log.test[0].rate));
}

TEST_F(LogsTest, AFileThatIsNoLogIsNamed) {
  const std::string path = Write("b.txt", "hello\n{\"kind\": 7}\n");
  const Status status = ReadTrainingLog(path).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(path + " is no log of training"));
  EXPECT_FALSE(ReadTrainingLog(Write("empty", "")).ok());
  EXPECT_EQ(ReadTrainingLog((folder_ / "none").string()).status().code(), StatusCode::kNotFound);
}

TEST_F(LogsTest, TruncatedAndDamagedLogsAreReadOrRefused) {
  std::mt19937 random(7);
  for (const std::string whole : {kLog, kMetrics}) {
    for (std::size_t length = 0; length < whole.size(); length += 37) {
      static_cast<void>(ReadTrainingLog(Write("cut", whole.substr(0, length))));
    }
    for (int i = 0; i < 300; ++i) {
      std::string damaged = whole;
      for (int n = 0; n < 8; ++n) damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
      const Result<TrainingLog> log = ReadTrainingLog(Write("damaged", damaged));
      if (!log.ok()) continue;
      for (const Row& row : log->train) EXPECT_TRUE(std::isfinite(row.iteration));
      for (const double seconds : log->seconds) EXPECT_TRUE(std::isfinite(seconds));
    }
  }
}

TEST_F(LogsTest, ALineWithoutEndIsCut) {
  std::string text(std::size_t{3} << 20, 'x');
  text += "\n" + std::string(kLog);
  EXPECT_THAT(Read(text).train, SizeIs(2));
}

TEST(LogLines, TimesAreThoseOfGlog) {
  LogClock clock(2024);
  EXPECT_EQ(clock.TimeOf("I0101 00:00:00.000001 1 x]"), 1704067200'000'001);
  EXPECT_EQ(clock.TimeOf("W0229 00:00:01.5"), std::optional<std::int64_t>(1704067200'000'000 + 59 * 86400'000'000LL + 1'000'005));
  EXPECT_EQ(clock.TimeOf("I0101 00:00:00.000000"), 1735689600'000'000);  // of the next year
  for (const char* line : {"", "I", "I0101", "I0101 ", "I1301 00:00:00.0", "I0001 00:00:00.0", "I0100 00:00:00.0", "I0101 24:00:00.0",
                           "I0101 00:60:00.0", "I0101 00:00:00", "I0101 00:00:00.", "notice: nothing", "iteration 0, loss"}) {
    EXPECT_FALSE(clock.TimeOf(line)) << line;
  }
}

TEST(LogLines, NumbersAreTakenWhereTheyAreNumbers) {
  EXPECT_EQ(IterationIn("x Iteration a Iteration 12, lr"), 12);
  EXPECT_FALSE(IterationIn("Iteration "));
  EXPECT_FALSE(IterationIn("Iteration " + std::string(400, '9')));
  EXPECT_EQ(RateIn("Iteration 1, lr = 1e-05"), 1e-05);
  EXPECT_FALSE(RateIn("lr = nan"));
  EXPECT_FALSE(RateIn("lr = inf"));
  EXPECT_EQ(LossIn("Iteration 1 (a), loss = -0.5"), -0.5);
  EXPECT_FALSE(LossIn(", loss = -nan"));
  EXPECT_EQ(OutputIn("    Train net output #12: loss1/loss1 = +0.5 (* 0.3 = 0.15 loss)", "Train")->name, "loss1/loss1");
  for (const char* line : {"Train net output #", "Train net output #1", "Train net output #x: a = 1", "Train net output #1: a =",
                           "Train net output #1: a = ", "Train net output #1: a = nan", "Train net output #1: = 1",
                           "Train net output #1: a b = 1", "Train net output #1: a = 1e", "Test net output #1: a = 1"}) {
    EXPECT_FALSE(OutputIn(line, "Train")) << line;
  }
}

TEST(PythonNumber, IsWhatPythonPrints) {
  const double nan = std::nan("");
  for (const auto& [value, text] : std::vector<std::pair<double, std::string>>{
           {0, "0.0"}, {100, "100.0"}, {0.1, "0.1"}, {1e-4, "0.0001"}, {1e-5, "1e-05"}, {123456789, "123456789.0"},
           {1e15, "1000000000000000.0"}, {1e16, "1e+16"}, {-2.5e-7, "-2.5e-07"}, {1.0 / 3, "0.3333333333333333"}, {nan, "nan"}}) {
    EXPECT_EQ(PythonNumber(value), text);
  }
}

TEST(Csv, NamesThatHoldTheDelimiterAreQuotedAndMissingCellsEmpty) {
  EXPECT_EQ(Csv({{1, 2, 3, {{"a,b", 4}}}, {2, 3, 3, {{"c\"", 5}}}}, ','),
            "NumIters,Seconds,LearningRate,\"a,b\",\"c\"\"\"\r\n1.0,2.0,3.0,4.0,\r\n2.0,3.0,3.0,,5.0\r\n");
  EXPECT_EQ(Csv({}, ','), "");
}

TEST_F(LogsTest, ChartsAreThoseOfCaffesScript) {
  EXPECT_EQ(ChartName(0), "Test accuracy vs. Iters");
  EXPECT_EQ(ChartName(3), "Test loss vs. Seconds");
  EXPECT_EQ(ChartName(4), "Train learning rate vs. Iters");
  EXPECT_EQ(ChartName(7), "Train loss vs. Seconds");
  const std::string log = Write("lenet.log", kLog);
  std::filesystem::create_directories(folder_ / "run-1");
  const std::string metrics = Write("run-1/metrics.jsonl", kMetrics);
  const draw::Chart accuracy = MakeChart(0, {log, metrics}).value();
  ASSERT_THAT(accuracy.series, SizeIs(2));
  EXPECT_EQ(accuracy.series[0].name, "lenet");
  EXPECT_EQ(accuracy.series[1].name, "run-1");
  EXPECT_EQ(accuracy.series[1].points[1].y, 0.75);
  const draw::Chart loss = MakeChart(7, {metrics}).value();
  EXPECT_EQ(loss.series[0].points[1].x, 1.75);
  EXPECT_EQ(loss.series[0].points[1].y, 0.5);
}

TEST_F(LogsTest, OutputsOfATestAreFoundByNameAndElseByPlace) {
  const std::string named = Write("n.log", R"(I0101 00:00:00.0 1 solver.cpp:272] Solving g
I0101 00:00:01.0 1 solver.cpp:330] Iteration 0, Testing net (#0)
I0101 00:00:01.0 1 solver.cpp:397]     Test net output #0: loss1/loss1 = 3
I0101 00:00:01.0 1 solver.cpp:397]     Test net output #1: loss1/top-1 = 0.1
I0101 00:00:01.0 1 solver.cpp:397]     Test net output #2: loss1/top-5 = 0.5
)");
  EXPECT_THAT(MakeChart(0, {named}).value().series, SizeIs(2));
  const draw::Chart loss = MakeChart(2, {named}).value();
  ASSERT_THAT(loss.series, SizeIs(1));
  EXPECT_EQ(loss.series[0].points[0].y, 3);
  const std::string placed = Write("p.log", R"(I0101 00:00:00.0 1 solver.cpp:272] Solving g
I0101 00:00:01.0 1 solver.cpp:330] Iteration 0, Testing net (#0)
I0101 00:00:01.0 1 solver.cpp:397]     Test net output #0: a = 0.25
I0101 00:00:01.0 1 solver.cpp:397]     Test net output #1: b = 7
)");
  EXPECT_EQ(MakeChart(0, {placed}).value().series[0].points[0].y, 0.25);
  EXPECT_EQ(MakeChart(2, {placed}).value().series[0].points[0].y, 7);
  EXPECT_THAT(MakeChart(4, {placed}).status().message(), HasSubstr(placed + " has no Train learning rate to show"));
}

}  // namespace
}  // namespace poseidon::logs
