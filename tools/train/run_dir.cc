// SPDX-License-Identifier: Apache-2.0
#include "tools/train/run_dir.h"

#include <array>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "poseidon/base/file.h"
#include "tools/console/fail.h"

namespace poseidon::tools {
namespace {

namespace fs = std::filesystem;

std::string DefaultRunDir(const std::string& solver) {
  const std::time_t now = std::time(nullptr);
  std::array<char, 32> text{};
  std::tm local{};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", localtime_r(&now, &local));
  return "runs/" + std::filesystem::path(solver).stem().string() + "-" + text.data();
}

constexpr std::array kResults = {"summary.json", "metrics.jsonl", "plan.json", "trace.json", "members.jsonl"};

// Those of a run that `folder` holds.
std::vector<fs::path> ResultsIn(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> results;
  for (const char* const name : kResults) {
    if (fs::exists(fs::symlink_status(folder / name, error))) results.push_back(folder / name);
  }
  return results;
}

std::error_code Move(const std::vector<fs::path>& files, const fs::path& to) {
  std::error_code error;
  for (const fs::path& file : files) {
    if (!error) fs::rename(file, to / file.filename(), error);
  }
  return error;
}

// The folders on the way to `folder` that are not there, the outermost first.
std::vector<fs::path> MissingOnTheWayTo(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> missing;
  for (fs::path at = fs::absolute(folder).lexically_normal(); at.has_relative_path() && !fs::exists(at, error);
       at = at.parent_path()) {
    if (at.has_filename()) missing.insert(missing.begin(), at);
  }
  return missing;
}

}  // namespace

void RunDir::PutAsideEarlierRun() {
  const std::vector<fs::path> results = ResultsIn(folder_);
  if (results.empty()) return;
  std::error_code error;
  int number = 1;
  const auto aside = [&] { return fs::path(folder_) / "earlier" / std::to_string(number); };
  while (fs::exists(aside(), error)) ++number;
  fs::create_directories(aside(), error);
  if (!error) error = Move(results, aside());
  if (error) Fail("cannot move the results of an earlier run to " + aside().string() + ": " + error.message());
  aside_ = aside();
}

std::unique_ptr<RunDir> RunDir::Make(caffe::TrainOptions& options) {
  if (options.run_dir.empty()) options.run_dir = DefaultRunDir(options.solver);
  std::unique_ptr<RunDir> run_dir(new RunDir(options.run_dir));
  run_dir->made_ = MissingOnTheWayTo(options.run_dir);
  std::error_code error;
  fs::create_directories(options.run_dir, error);
  if (error) FailUsage("cannot make run directory " + options.run_dir + ": " + error.message());
  if (const Status written = TryToWriteBeside(options.run_dir + "/results"); !written.ok()) {
    Fail("run directory " + options.run_dir + " cannot be written: " + written.message());
  }
  run_dir->PutAsideEarlierRun();
  return run_dir;
}

// What cannot be undone stays: a folder that holds something is not removed.
RunDir::~RunDir() {
  std::error_code error;
  if (!aside_.empty() && ResultsIn(folder_).empty()) {
    Move(ResultsIn(aside_), folder_);
    fs::remove(aside_, error);
    fs::remove(aside_.parent_path(), error);
  }
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) fs::remove(*made, error);
}

}  // namespace poseidon::tools
