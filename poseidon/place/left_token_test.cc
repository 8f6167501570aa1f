// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/left_token.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

namespace poseidon::place {
namespace {

namespace fs = std::filesystem;
using transport::tcp::Token;

class LeftTokenTest : public testing::Test {
 protected:
  LeftTokenTest() { fs::create_directory(folder_); }
  ~LeftTokenTest() override { fs::remove_all(folder_); }

  std::unique_ptr<File> Held(const std::string& name) const {
    Result<std::unique_ptr<File>> held = WriteHeldToken(*Token::Generate(), folder_ + name);
    if (held.ok()) return *std::move(held);
    ADD_FAILURE() << held.status().message();
    return nullptr;
  }
  bool Has(const std::string& name) const { return fs::exists(folder_ + name); }

  const std::string folder_ = testing::TempDir() + "/left_token_" + std::to_string(getpid());
};

TEST_F(LeftTokenTest, OfAProcessThatWasKilledIsRemovedWithItsNote) {
  const auto ours = Held("/ours.token");
  const pid_t child = fork();
  if (child == 0) {
    const auto held = Held("/killed.token");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  for (const char* note : {"/killed.address", "/ours.address", "/other.address"}) std::ofstream(folder_ + note) << "note\n";
  EXPECT_TRUE(Has("/killed.token"));
  RemoveLeftTokens(folder_);
  EXPECT_FALSE(Has("/killed.token"));
  EXPECT_FALSE(Has("/killed.address"));
  EXPECT_TRUE(Has("/ours.token"));
  EXPECT_TRUE(Has("/ours.address"));
  EXPECT_TRUE(Has("/other.address"));
}

TEST_F(LeftTokenTest, IsHeldUntilItIsClosed) {
  auto held = Held("/ours.token");
  EXPECT_TRUE(Token::FromFile(folder_ + "/ours.token").ok());  // which looks at the mode
  RemoveLeftTokens(folder_);
  EXPECT_TRUE(Has("/ours.token"));
  held.reset();
  RemoveLeftTokens(folder_);
  EXPECT_FALSE(Has("/ours.token"));
}

TEST_F(LeftTokenTest, NamesWhatCannotBeWritten) {
  const auto held = WriteHeldToken(*Token::Generate(), folder_ + "/none/x.token");
  EXPECT_NE(held.status().message().find(folder_ + "/none/x.token"), std::string::npos) << held.status().message();
  RemoveLeftTokens(folder_ + "/none");
}

}  // namespace
}  // namespace poseidon::place
