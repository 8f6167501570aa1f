// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/new_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace poseidon {
namespace {

namespace fs = std::filesystem;

class NewFileTest : public testing::Test {
 protected:
  NewFileTest() { fs::create_directory(folder_); }
  ~NewFileTest() override { fs::remove_all(folder_); }

  const std::string folder_ = testing::TempDir() + "/new_file_" + std::to_string(getpid());
};

TEST_F(NewFileTest, TakesThePlaceOfALinkAndWritesNothingThroughIt) {
  const std::string target = folder_ + "/target", link = folder_ + "/link";
  std::ofstream(target) << "kept";
  fs::create_symlink(target, link);
  const Result<std::unique_ptr<File>> file = NewFile(link);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_TRUE(WriteAll((*file)->fd(), "written").ok());
  EXPECT_FALSE(fs::is_symlink(link));
  EXPECT_EQ(fs::file_size(link), 7u);
  EXPECT_EQ(fs::file_size(target), 4u);
}

TEST_F(NewFileTest, RoomThatAKilledProcessHadLeavesNothing) {
  const pid_t child = fork();
  if (child == 0) {
    const Result<std::unique_ptr<File>> room = TakeRoomBeside(folder_ + "/model", 4096);
    if (room.ok()) kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(NewFileTest, RoomInNoFolderIsNamed) {
  const Result<std::unique_ptr<File>> room = TakeRoomBeside(folder_ + "/none/model", 1);
  ASSERT_FALSE(room.ok());
  EXPECT_NE(room.status().message().find(folder_ + "/none/model"), std::string::npos) << room.status().message();
}

}  // namespace
}  // namespace poseidon
