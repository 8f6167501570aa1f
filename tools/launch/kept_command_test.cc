// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/kept_command.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "tools/launch/descendants.h"

namespace poseidon::launch {
namespace {

// All that the command writes to standard output until it closes it.
std::string OutputOf(const KeptCommand& command) {
  std::string text;
  char bytes[4096];
  for (;;) {
    pollfd polled = {command.output(), POLLIN, 0};
    poll(&polled, 1, 10000);
    const ssize_t n = read(command.output(), bytes, sizeof bytes);
    if (n <= 0) return text;
    text.append(bytes, static_cast<std::size_t>(n));
  }
}

// The first line, which the command writes when it is ready.
std::string LineOf(const KeptCommand& command) {
  pollfd polled = {command.output(), POLLIN, 0};
  poll(&polled, 1, 10000);
  char bytes[4096];
  const ssize_t n = read(command.output(), bytes, sizeof bytes);
  return n > 0 ? std::string(bytes, static_cast<std::size_t>(n)) : "";
}

int WaitFor(KeptCommand& command) {
  for (;;) {
    if (const auto status = command.TryWait()) return *status;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(KeptCommandTest, HandsOverOutputAndStatus) {
  auto command = KeptCommand::Start({"sh", "-c", "echo $WORD; exit 7"}, {{"WORD", "hello"}});
  ASSERT_TRUE(command.ok()) << command.status().message();
  EXPECT_EQ(OutputOf(*command), "hello\n");
  const int status = WaitFor(*command);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(KeptCommandTest, SaysWhatCannotBeRun) {
  const auto command = KeptCommand::Start({"no-such-program"}, {});
  ASSERT_FALSE(command.ok());
  EXPECT_EQ(command.status().message(), "cannot run 'no-such-program': No such file or directory");
  EXPECT_TRUE(DescendantsOf(getpid()).empty());
}

TEST(KeptCommandTest, PassesSignalsOn) {
  auto command = KeptCommand::Start({"sh", "-c", "trap 'exit 5' INT; echo ready; while :; do sleep 0.01; done"}, {});
  ASSERT_TRUE(command.ok());
  EXPECT_EQ(LineOf(*command), "ready\n");
  command->Signal(SIGINT);
  EXPECT_EQ(WEXITSTATUS(WaitFor(*command)), 5);
}

// A grandchild in a session of its own, which hears nothing of the command's end.
const char kWithGrandchild[] = "setsid sleep 300 & echo ready; ";

TEST(KeptCommandTest, LeavesNothingBehindWhenTheCommandEnds) {
  auto command = KeptCommand::Start({"sh", "-c", std::string(kWithGrandchild) + "exit 0"}, {});
  ASSERT_TRUE(command.ok());
  EXPECT_EQ(WaitFor(*command), 0);
  EXPECT_TRUE(DescendantsOf(getpid()).empty());
}

TEST(KeptCommandTest, LeavesNothingBehindWhenItIsEnded) {
  auto command = KeptCommand::Start({"sh", "-c", std::string(kWithGrandchild) + "sleep 300"}, {});
  ASSERT_TRUE(command.ok());
  EXPECT_EQ(LineOf(*command), "ready\n");
  command->End();
  EXPECT_TRUE(DescendantsOf(getpid()).empty());
}

TEST(KeptCommandTest, LeavesNothingBehindWhenItsKeeperIsKilled) {
  auto command = KeptCommand::Start({"sh", "-c", std::string(kWithGrandchild) + "sleep 300"}, {});
  ASSERT_TRUE(command.ok());
  EXPECT_EQ(LineOf(*command), "ready\n");
  kill(DescendantsOf(getpid()).front(), SIGKILL);
  const int status = WaitFor(*command);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_TRUE(DescendantsOf(getpid()).empty());
}

// Whether a process has ended, or ends soon.
bool Ends(pid_t pid) {
  for (int i = 0; i < 5000; ++i) {
    if (kill(pid, 0) != 0) return true;
    waitpid(pid, nullptr, WNOHANG);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST(KeptCommandTest, LeavesNothingBehindWhenItsOwnerIsKilled) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    auto command = KeptCommand::Start({"sh", "-c", std::string(kWithGrandchild) + "sleep 300"}, {});
    const std::string line = command.ok() ? LineOf(*command) : "none\n";
    static_cast<void>(!write(ready[1], line.data(), line.size()));
    for (;;) pause();
  }
  char bytes[16];
  ASSERT_EQ(read(ready[0], bytes, sizeof bytes), 6);
  const auto started = DescendantsOf(owner);
  EXPECT_GE(started.size(), 3U);  // the keeper, the shell and what it started
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  for (const pid_t pid : started) EXPECT_TRUE(Ends(pid)) << pid;
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace poseidon::launch
