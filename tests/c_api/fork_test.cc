// SPDX-License-Identifier: Apache-2.0
// A process that trains and forks, as data loaders with workers do, with libposeidon.so and real kills.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/c_api/two_processes.h"

namespace {

using namespace poseidon_test;  // NOLINT(google-build-using-namespace)

constexpr int kChildren = 8;

using Forking = TwoProcesses;

TEST_F(Forking, AKilledRankWithLiveChildrenIsNamedAtOnce) {
  Pipe children;
  Start([&](poseidon_session*) {
    for (int i = 0; i < kChildren; ++i) {
      children.Write(Fork([] {
        for (;;) ::pause();
        return 0;
      }));
    }
    for (;;) ::pause();
    return 0;
  });
  std::vector<pid_t> alive;
  for (int i = 0; i < kChildren; ++i) alive.push_back(children.Read<pid_t>());
  const auto begin = std::chrono::steady_clock::now();
  ::kill(other_, SIGKILL);
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  EXPECT_NE(poseidon_barrier(session_, &status), POSEIDON_OK);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(status.culprit, 1) << status.message;
  EXPECT_LT(took.count(), 1.0);  // the promise
  for (const pid_t child : alive) {
    EXPECT_EQ(::kill(child, 0), 0) << "the child outlived its parent";
    ::kill(child, SIGKILL);
  }
}

TEST_F(Forking, AChildUsesNoSessionOfItsParentAndEndsAsItLikes) {
  Start([](poseidon_session* session) {
    for (int i = 0; i < kChildren; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        poseidon_status status = POSEIDON_NEW(poseidon_status);
        if (poseidon_barrier(session, &status) != POSEIDON_FAILED_PRECONDITION) std::_Exit(102);
        if (std::string(status.message).find("forked") == std::string::npos) std::_Exit(103);
        poseidon_abort(session, "is not heard");
        poseidon_close(session);
        std::exit(7);  // with everything that runs at a program's end
      }
      if (const int code = CodeOf(child); code != 7) return code;
    }
    // And the parent's session is as it was.
    if (poseidon_barrier(session, nullptr) != POSEIDON_OK) return 104;
    if (poseidon_leave(session, nullptr) != POSEIDON_OK) return 105;
    poseidon_close(session);
    return 0;
  });
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  EXPECT_EQ(poseidon_barrier(session_, &status), POSEIDON_OK) << status.message;
  EXPECT_EQ(poseidon_leave(session_, &status), POSEIDON_OK) << status.message;
  EXPECT_EQ(CodeOf(other_), 0);
  ended_ = true;
}

TEST_F(Forking, AChildMayJoinAJobOfItsOwn) {
  Start([](poseidon_session* session) {
    const pid_t child = Fork([] {
      poseidon_options options = POSEIDON_NEW(poseidon_options);
      options.workers = 1;
      options.hosts_coordinator = 1;
      poseidon_session* own = nullptr;
      if (poseidon_open(&options, &own, nullptr) != POSEIDON_OK) return 106;
      if (poseidon_barrier(own, nullptr) != POSEIDON_OK) return 107;
      if (poseidon_leave(own, nullptr) != POSEIDON_OK) return 108;
      poseidon_close(own);
      return 0;
    });
    if (const int code = CodeOf(child); code != 0) return code;
    if (poseidon_leave(session, nullptr) != POSEIDON_OK) return 105;
    poseidon_close(session);
    return 0;
  });
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  EXPECT_EQ(poseidon_leave(session_, &status), POSEIDON_OK) << status.message;
  EXPECT_EQ(CodeOf(other_), 0);
  ended_ = true;
}

}  // namespace
