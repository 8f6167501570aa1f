// SPDX-License-Identifier: Apache-2.0
#include "tools/run/run_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace poseidon::tools {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(RunLogTest, EachRankHasItsFile) {
  const std::string folder = testing::TempDir() + "/run_log_" + std::to_string(getpid()) + "/deep";
  RunLog log(2);
  ASSERT_TRUE(log.WriteInto(folder).ok());
  log.Line(0, false, "one");
  log.Line(1, true, "two");
  log.Line(0, true, "three");
  EXPECT_EQ(TextOf(folder + "/rank-0.log"), "one\nthree\n");
  EXPECT_EQ(TextOf(folder + "/rank-1.log"), "two\n");
  std::filesystem::remove_all(std::filesystem::path(folder).parent_path());
}

TEST(RunLogTest, SaysWhichFolderCannotBeMade) {
  RunLog log(1);
  const Status status = log.WriteInto("/dev/null/logs");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("folder /dev/null/logs cannot be made"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace poseidon::tools
