// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/processor_time.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

namespace poseidon::session {
namespace {

using std::chrono::milliseconds;

// The kernel counts others' time in ticks of 10 ms.
constexpr Duration kUsed = milliseconds(100);
constexpr Duration kCounted = milliseconds(80);

[[noreturn]] void UseProcessorAnd(int tell) {
  const Duration begin = ProcessorTime();
  while (ProcessorTime() - begin < kUsed) {
  }
  if (write(tell, "x", 1) != 1) _exit(1);
  for (;;) pause();
}

TEST(ProcessorTime, CountsChildrenThatLiveAndTheirs) {
  const Duration before = ProcessorTimeOfChildren();
  const Duration own = ProcessorTime();
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      UseProcessorAnd(told[1]);
    }
    for (;;) pause();
  }
  char word;
  ASSERT_EQ(read(told[0], &word, 1), 1);
  EXPECT_GE(ProcessorTimeOfChildren() - before, kCounted);
  EXPECT_LT(ProcessorTime() - own, kCounted);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  close(told[0]);
  close(told[1]);
}

TEST(ProcessorTime, CountsAChildThatWasWaitedFor) {
  const Duration before = ProcessorTimeOfChildren();
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) UseProcessorAnd(told[1]);
  char word;
  ASSERT_EQ(read(told[0], &word, 1), 1);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_GE(ProcessorTimeOfChildren() - before, kCounted);
  close(told[0]);
  close(told[1]);
}

}  // namespace
}  // namespace poseidon::session
