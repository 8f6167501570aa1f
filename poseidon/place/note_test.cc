// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/note.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

namespace poseidon::place {
namespace {

class NoteTest : public testing::Test {
 protected:
  ~NoteTest() override { std::remove(path_.c_str()); }
  const std::string path_ = testing::TempDir() + "/note_" + std::to_string(getpid());
};

TEST_F(NoteTest, IsAwaited) {
  Result<Note> found = Unavailable("nothing yet");
  std::thread reader([&] { found = AwaitNote(path_, {.same_host = true}); });
  EXPECT_TRUE(LeaveNote(path_, {"10.0.0.7", 4000, getpid()}).ok());
  reader.join();
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->host, "10.0.0.7");
  EXPECT_EQ(found->port, 4000);
}

TEST_F(NoteTest, OfAnEndedProcessIsNone) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  ASSERT_TRUE(LeaveNote(path_, {"127.0.0.1", 4000, gone}).ok());
  using std::chrono::milliseconds;
  EXPECT_TRUE(AwaitNote(path_, {.timeout = milliseconds(50), .same_host = false}).ok());
  const auto found = AwaitNote(path_, {.timeout = milliseconds(50), .same_host = true});
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.status().message().find(path_), std::string::npos);
}

TEST_F(NoteTest, IsAwaitedUntilInterrupted) {
  int looks = 0;
  const auto found = AwaitNote(path_, {.interrupted = [&] { return ++looks == 2; }});
  EXPECT_EQ(found.status().code(), StatusCode::kAborted);
  EXPECT_EQ(looks, 2);
}

TEST_F(NoteTest, ThatIsMissingIsNamedWithTheTime) {
  const auto found = AwaitNote(path_, {.timeout = std::chrono::milliseconds(20)});
  EXPECT_EQ(found.status().message(), "rank 0 has not said in " + path_ + " within 0.02 s where it listens: it has failed, or "
                                      "does not share that folder");
}

TEST_F(NoteTest, ThatCannotBeLeftIsNamed) {
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);  // where the note should be
  const Status left = LeaveNote(path_, {"10.0.0.7", 4000, getpid()});
  EXPECT_EQ(left.code(), StatusCode::kUnavailable);
  EXPECT_EQ(left.message().find("the other processes cannot be told where to join: cannot write " + path_), 0u)
      << left.message();
  struct stat written {};
  EXPECT_NE(stat((path_ + "." + std::to_string(getpid())).c_str(), &written), 0);
  rmdir(path_.c_str());
}

TEST(PrivateFolderTest, IsOfThisUserAlone) {
  const std::string parent = testing::TempDir() + "/private_" + std::to_string(getpid());
  ASSERT_EQ(mkdir(parent.c_str(), 0755), 0);
  const auto made = PrivateFolder(parent);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_TRUE(PrivateFolder(parent).ok());
  chmod(made->c_str(), 0755);
  EXPECT_FALSE(PrivateFolder(parent).ok());
  rmdir(made->c_str());
  rmdir(parent.c_str());
}

}  // namespace
}  // namespace poseidon::place
