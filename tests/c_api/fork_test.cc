// SPDX-License-Identifier: Apache-2.0
// A process that trains and forks, as data loaders with workers do, with libposeidon.so and real kills.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "poseidon/c/poseidon.h"

namespace {

constexpr std::array<std::uint8_t, 32> kToken = {3, 1, 4, 1, 5};
constexpr int kChildren = 8;

// Forks a process that runs `life` and ends with the number that it returns.
pid_t Fork(const std::function<int()>& life) {
  const pid_t pid = ::fork();
  if (pid == 0) std::_Exit(life());
  return pid;
}

int CodeOf(pid_t pid) {
  int how = 0;
  if (::waitpid(pid, &how, 0) != pid) return -1;
  return WIFEXITED(how) ? WEXITSTATUS(how) : 1000 + WTERMSIG(how);
}

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends.data()), 0); }
  ~Pipe() {
    for (const int end : ends) ::close(end);
  }
  template <typename T>
  void Write(const T& value) const {
    EXPECT_EQ(::write(ends[1], &value, sizeof value), static_cast<ssize_t>(sizeof value));
  }
  template <typename T>
  T Read() const {
    T value{};
    EXPECT_EQ(::read(ends[0], &value, sizeof value), static_cast<ssize_t>(sizeof value));
    return value;
  }
  std::array<int, 2> ends{};
};

poseidon_options Options(std::uint32_t rank, std::uint32_t port) {
  poseidon_options options = POSEIDON_NEW(poseidon_options);
  options.workers = 2;
  options.hosts_coordinator = rank == 0 ? 1 : 0;
  options.token_bytes = kToken.data();
  options.coordinator_port = port;
  options.join_timeout_seconds = 60;
  return options;
}

// The session of rank 0, here; rank 1 is a process that is forked before it, opens its own and then lives `life`.
class Forking : public testing::Test {
 protected:
  void Start(const std::function<int(poseidon_session*)>& life) {
    other_ = Fork([&] {
      const poseidon_options options = Options(1, port_.Read<std::uint32_t>());
      poseidon_session* session = nullptr;
      if (poseidon_open(&options, &session, nullptr) != POSEIDON_OK) return 101;
      return life(session);
    });
    poseidon_options options = Options(0, 0);
    options.listening = [](void* port, const char*, std::uint32_t number) {
      static_cast<Pipe*>(port)->Write(number);
    };
    options.listening_user = &port_;
    poseidon_status status = POSEIDON_NEW(poseidon_status);
    ASSERT_EQ(poseidon_open(&options, &session_, &status), POSEIDON_OK) << status.message;
  }
  void TearDown() override {
    poseidon_close(session_);
    if (other_ > 0 && !ended_) ::kill(other_, SIGKILL);
    if (other_ > 0 && !ended_) CodeOf(other_);
  }

  Pipe port_;
  pid_t other_ = 0;
  bool ended_ = false;
  poseidon_session* session_ = nullptr;
};

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
