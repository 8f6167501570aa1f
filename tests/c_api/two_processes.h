// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_C_API_TWO_PROCESSES_H_
#define POSEIDON_TESTS_C_API_TWO_PROCESSES_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>

#include "poseidon/c/poseidon.h"

// A job of two real processes on libposeidon.so: rank 0 is the test's own, rank 1 is forked from it.
namespace poseidon_test {

inline constexpr std::array<std::uint8_t, 32> kToken = {3, 1, 4, 1, 5};

// Forks a process that runs `life` and ends with the number that it returns.
inline pid_t Fork(const std::function<int()>& life) {
  const pid_t pid = ::fork();
  if (pid == 0) std::_Exit(life());
  return pid;
}

inline int CodeOf(pid_t pid) {
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

inline poseidon_options Options(std::uint32_t rank, std::uint32_t port) {
  poseidon_options options = POSEIDON_NEW(poseidon_options);
  options.workers = 2;
  options.hosts_coordinator = rank == 0 ? 1 : 0;
  options.token_bytes = kToken.data();
  options.coordinator_port = port;
  options.join_timeout_seconds = 60;
  return options;
}

// The session of rank 0, here; rank 1 is a process that is forked before it, opens its own and then lives `life`.
class TwoProcesses : public testing::Test {
 protected:
  // Fills the options that both processes have in common.
  virtual void Choose(poseidon_options&) {}

  void Start(const std::function<int(poseidon_session*)>& life) {
    other_ = Fork([&] {
      poseidon_options options = Options(1, port_.Read<std::uint32_t>());
      Choose(options);
      poseidon_session* session = nullptr;
      if (poseidon_open(&options, &session, nullptr) != POSEIDON_OK) return 101;
      return life(session);
    });
    poseidon_options options = Options(0, 0);
    Choose(options);
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

}  // namespace poseidon_test

#endif  // POSEIDON_TESTS_C_API_TWO_PROCESSES_H_
