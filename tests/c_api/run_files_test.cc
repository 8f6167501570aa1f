// SPDX-License-Identifier: Apache-2.0
// What rank 0 leaves in its run directory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/c_api/one_process.h"

namespace {

using namespace poseidon_test;  // NOLINT(google-build-using-namespace)
using nlohmann::json;
using std::filesystem::path;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class RunFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "poseidon-run.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Two workers make some steps; worker 1 computes longer. What rank 0 logs is in logged_.
  void Train(const path& run_dir) {
    Job job(2);
    ExpectAllOk(job.Run([&](std::uint32_t rank, poseidon_options options) {
      options.run_dir = run_dir.c_str();
      options.log_user = &logged_;
      if (rank == 0) {
        options.log = [](void* logged, std::int32_t, const char* line) {
          static_cast<std::vector<std::string>*>(logged)->emplace_back(line);
        };
      }
      Session session(options);
      Model model = session.NewModel();
      const std::uint32_t a = model.Declare(Dense("a", 4));
      model.Commit();
      std::vector<float> gradient(4, 1.0f);
      for (std::uint64_t step = 0; step < 5; ++step) {
        model.BeginStep(step);
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        model.Push(a, step, View(gradient));
        model.Wait(a);
        session.Note(step + 1, {{"loss", step == 2 ? std::nan("") : 1.0 / static_cast<double>(step + 1)}});
      }
      session.Note(5, {{"loss", 0.5}, {"accuracy", 0.75}}, true);
      session.Leave();
    }));
  }

  static json Read(const path& file) {
    std::ifstream stream(file);
    return json::parse(stream);
  }
  static std::vector<json> Lines(const path& file) {
    std::ifstream stream(file);
    std::vector<json> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
    return lines;
  }

  path folder_;
  std::vector<std::string> logged_;
};

TEST_F(RunFiles, HaveThePlanTheStepsAndWhoWasSlow) {
  const path run = folder_ / "made" / "run";
  std::filesystem::create_directories(run);
  std::ofstream(run / "metrics.jsonl") << "of an earlier run\n";
  std::ofstream(run / "kept.txt") << "the program's\n";
  Train(run);
  const json summary = Read(run / "summary.json");
  EXPECT_EQ(summary["workers"], 2);
  EXPECT_EQ(summary["iterations"], 5);
  ASSERT_EQ(summary["computed_seconds"].size(), 2u);
  EXPECT_GT(summary["computed_seconds"][1].get<double>(), summary["computed_seconds"][0].get<double>());
  EXPECT_GE(summary["computed_seconds"][1].get<double>(), 0.02 * summary["waited_seconds"]["steps"].get<double>());
  EXPECT_GT(summary["step_seconds"]["measured"].get<double>(), 0.015);
  EXPECT_THAT(summary["what_would_help"].get<std::string>(), HasSubstr("known once"));
  EXPECT_EQ(summary["plan"][0]["counted_bytes"]["sent"], 16) << "half of 16 bytes to the other, and its half's mean";
  const json plan = Read(run / "plan.json");
  EXPECT_EQ(plan["layers"][0]["layer"], "a");
  EXPECT_EQ(plan["layers"][0]["scheme"], "kv");
  std::vector<std::string> names;
  const json trace = Read(run / "trace.json");
  for (const json& event : trace["traceEvents"]) names.push_back(event["name"]);
  EXPECT_THAT(names, Contains("push a"));
  EXPECT_TRUE(std::filesystem::exists(run / "kept.txt"));
  EXPECT_THAT(logged_, Not(Contains(HasSubstr("account"))));
}

TEST_F(RunFiles, HaveTheNumbersThatWereNoted) {
  Train(folder_);
  const std::vector<json> lines = Lines(folder_ / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0]["kind"], "train");
  EXPECT_EQ(lines[0]["iteration"], 1);
  EXPECT_EQ(lines[1]["loss"], 0.5);
  EXPECT_TRUE(lines[2]["loss"].is_null()) << "JSON has no NaN";
  EXPECT_EQ(lines[5]["kind"], "test");
  EXPECT_EQ(lines[5]["outputs"], (json{{"loss", 0.5}, {"accuracy", 0.75}}));
  EXPECT_GE(lines[5]["elapsed"], lines[0]["elapsed"]);
}

TEST_F(RunFiles, ThatCannotBeWrittenEndNoJob) {
  std::ofstream(folder_ / "file") << "no folder\n";
  Train(folder_ / "file");
  EXPECT_THAT(logged_, Contains(HasSubstr("metrics.jsonl has no losses of this run: ")));
  EXPECT_THAT(logged_, Contains(HasSubstr("file has no account of this run: ")));
}

TEST_F(RunFiles, RefuseWhatHasNoName) {
  Session session(Alone());
  const poseidon_number nameless = {nullptr, 1};
  auto status = POSEIDON_NEW(poseidon_status);
  EXPECT_EQ(poseidon_note(session.get(), 0, 0, &nameless, 1, &status), POSEIDON_INVALID_ARGUMENT);
  EXPECT_THAT(status.message, HasSubstr("the name of a number is NULL"));
  EXPECT_EQ(poseidon_note(session.get(), 0, 0, nullptr, 1, &status), POSEIDON_INVALID_ARGUMENT);
  EXPECT_EQ(poseidon_note(session.get(), 0, 0, nullptr, 0, &status), POSEIDON_OK) << "without a run_dir nothing is done";
  session.Leave();
}

}  // namespace
