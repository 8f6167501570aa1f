// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/child.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

namespace poseidon::launch {
namespace {

constexpr int kNotBegun = 127;  // a shell's code for what it cannot run

}  // namespace

std::vector<char*> ArgvOf(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  return argv;
}

void EndWithParent(int signal, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, signal);
  // The parent may have died before the call above.
  if (getppid() != parent) _exit(kNotBegun);
}

void Become(char* const* argv, const Streams& streams, int report) {
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  dup2(streams.input, STDIN_FILENO);
  dup2(streams.output, STDOUT_FILENO);
  dup2(streams.errors, STDERR_FILENO);
  execvp(argv[0], argv);
  const int error = errno;
  signal(SIGPIPE, SIG_IGN);  // the parent may have given up
  static_cast<void>(!write(report, &error, sizeof error));
  _exit(kNotBegun);
}

}  // namespace poseidon::launch
