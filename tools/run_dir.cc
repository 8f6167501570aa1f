// SPDX-License-Identifier: Apache-2.0
#include "tools/run_dir.h"

#include <array>
#include <ctime>
#include <filesystem>

#include "tools/commands.h"

namespace poseidon::tools {
namespace {

std::string DefaultRunDir(const std::string& solver) {
  const std::time_t now = std::time(nullptr);
  std::array<char, 32> text{};
  std::tm local{};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", localtime_r(&now, &local));
  return "runs/" + std::filesystem::path(solver).stem().string() + "-" + text.data();
}

}  // namespace

void MakeRunDir(caffe::TrainOptions& options) {
  if (options.run_dir.empty()) options.run_dir = DefaultRunDir(options.solver);
  std::error_code error;
  std::filesystem::create_directories(options.run_dir, error);
  if (error) Fail("cannot make run directory " + options.run_dir + ": " + error.message());
}

}  // namespace poseidon::tools
