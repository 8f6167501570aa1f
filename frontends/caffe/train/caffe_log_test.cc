// SPDX-License-Identifier: Apache-2.0
// The log that scripts for Caffe read. The lines were written by hand after logs of BVLC Caffe 1.0.
#include "frontends/caffe/train/caffe_log.h"

#include <gmock/gmock.h>

#include <regex>
#include <string>
#include <vector>

#include "frontends/caffe/train/observers.h"

namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;

class CapturedLog final : public Output {
 public:
  void Print(const std::string&) override {}
  void Progress(const std::string&) override {}
  std::size_t width() const override { return 80; }
  void Log(LogLevel, std::string_view) override {}
  void PrintLog(const std::string& line) override {
    static const std::regex prefix(R"(I(0[1-9]|1[0-2])([0-2][0-9]|3[01]) [0-2][0-9]:[0-5][0-9]:[0-5][0-9]\.[0-9]{6} +[0-9]+ )");
    std::smatch found;
    const bool at_the_beginning = std::regex_search(line, found, prefix) && found.position() == 0;
    lines.push_back(at_the_beginning ? found.suffix().str() : "no prefix: " + line);
  }
  std::vector<std::string> lines;
};

class CaffeLogTest : public ::testing::Test {
 protected:
  CaffeLogTest() { observers_.Add(&log_); }
  std::vector<std::string> Taken() { return std::exchange(output_.lines, {}); }

  CapturedLog output_;
  CaffeLog log_{output_};
  Observers observers_;
};

TEST_F(CaffeLogTest, ARunBeginsAndEndsAsCaffesDo) {
  log_.Begin({.net = "LeNet", .lr_policy = "inv", .display = 100});
  EXPECT_THAT(Taken(), ElementsAre("caffe.cpp:248] Starting Optimization", "solver.cpp:272] Solving LeNet",
                                   "solver.cpp:273] Learning Rate Policy: inv"));
  log_.End(/*stopped=*/false);
  EXPECT_THAT(Taken(), ElementsAre("solver.cpp:315] Optimization Done.", "caffe.cpp:259] Optimization Done."));
  log_.End(/*stopped=*/true);
  EXPECT_THAT(Taken(), ElementsAre("solver.cpp:295] Optimization stopped early.", "caffe.cpp:259] Optimization Done."));
}

TEST_F(CaffeLogTest, ADisplayedIterationHasItsOutputsAndItsRate) {
  log_.Begin({.net = "two\nlines", .lr_policy = "fixed", .display = 100});
  EXPECT_EQ(Taken()[1], "solver.cpp:272] Solving two lines");
  IterationReport report;
  report.iteration = 100;
  report.smoothed_loss = 0.5;
  report.rate = 0.00992565;
  observers_.OnIteration(report);
  EXPECT_TRUE(Taken().empty());
  report.display = true;
  report.outputs = {{"accuracy", 0.75, 0}, {"loss1", 2, 0.3}, {"scores", 1e-7, 0}, {"scores", 123456789, 0}};
  observers_.OnIteration(report);
  EXPECT_THAT(Taken(),
              ElementsAre(MatchesRegex("solver.cpp:218\\] Iteration 100 \\([-+.0-9e]+ iter/s, [-+.0-9e]+s/100 iters\\), loss = 0.5"),
                          "solver.cpp:237]     Train net output #0: accuracy = 0.75",
                          "solver.cpp:237]     Train net output #1: loss1 = 2 (* 0.3 = 0.6 loss)",
                          "solver.cpp:237]     Train net output #2: scores = 1e-07",
                          "solver.cpp:237]     Train net output #3: scores = 1.23457e+08",
                          "sgd_solver.cpp:105] Iteration 100, lr = 0.00992565"));
  report.closing = true;
  observers_.OnIteration(report);
  EXPECT_THAT(Taken(), ElementsAre("solver.cpp:310] Iteration 100, loss = 0.5"));
}

TEST_F(CaffeLogTest, ATestIsBegunAndHasItsOutputs) {
  observers_.OnTestBegin(500, 1);
  EXPECT_THAT(Taken(), ElementsAre("solver.cpp:330] Iteration 500, Testing net (#1)"));
  TestReport report;
  report.outputs = {{"accuracy", 0.7, 0}, {"loss", 0.9, 1}};
  report.has_loss = true;
  report.loss = 0.9;
  observers_.OnTest(report);
  EXPECT_THAT(Taken(), ElementsAre("solver.cpp:384] Test loss: 0.9", "solver.cpp:397]     Test net output #0: accuracy = 0.7",
                                   "solver.cpp:397]     Test net output #1: loss = 0.9 (* 1 = 0.9 loss)"));
}

TEST_F(CaffeLogTest, SnapshotsAreNamedWhereTheyWereWritten) {
  SnapshotReport report{.iteration = 5, .model = "m_iter_5.caffemodel", .state = "m_iter_5.solverstate", .status = OkStatus()};
  observers_.OnSnapshot(report);
  EXPECT_THAT(Taken(), ElementsAre("solver.cpp:447] Snapshotting to binary proto file m_iter_5.caffemodel",
                                   "sgd_solver.cpp:273] Snapshotting solver state to binary proto file m_iter_5.solverstate"));
  report.status = ResourceExhausted("no space");
  observers_.OnSnapshot(report);
  EXPECT_TRUE(Taken().empty());
}

}  // namespace
}  // namespace poseidon::caffe
