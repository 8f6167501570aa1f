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

std::string DefaultRunDir(const std::string& solver) {
  const std::time_t now = std::time(nullptr);
  std::array<char, 32> text{};
  std::tm local{};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", localtime_r(&now, &local));
  return "runs/" + std::filesystem::path(solver).stem().string() + "-" + text.data();
}

constexpr std::array kResults = {"summary.json", "metrics.jsonl", "plan.json", "trace.json", "members.jsonl"};

void PutAsideEarlierRun(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> results;
  for (const char* const name : kResults) {
    if (fs::exists(fs::path(folder) / name, error)) results.push_back(fs::path(folder) / name);
  }
  if (results.empty()) return;
  int number = 1;
  const auto aside = [&] { return fs::path(folder) / "earlier" / std::to_string(number); };
  while (fs::exists(aside(), error)) ++number;
  fs::create_directories(aside(), error);
  for (const fs::path& result : results) {
    if (!error) fs::rename(result, aside() / result.filename(), error);
  }
  if (error) Fail("cannot move the results of an earlier run to " + aside().string() + ": " + error.message());
}

}  // namespace

void MakeRunDir(caffe::TrainOptions& options) {
  if (options.run_dir.empty()) options.run_dir = DefaultRunDir(options.solver);
  std::error_code error;
  std::filesystem::create_directories(options.run_dir, error);
  if (error) Fail("cannot make run directory " + options.run_dir + ": " + error.message());
  if (const Status written = TryToWriteBeside(options.run_dir + "/results"); !written.ok()) {
    Fail("run directory " + options.run_dir + " cannot be written: " + written.message());
  }
  PutAsideEarlierRun(options.run_dir);
}

}  // namespace poseidon::tools
