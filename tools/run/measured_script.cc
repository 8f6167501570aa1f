// SPDX-License-Identifier: Apache-2.0
#include "tools/run/measured_script.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "poseidon/base/status.h"
#include "tools/launch/child.h"
#include "tools/launch/memory_file.h"
#include "tools/launch/pipe.h"
#include "tools/launch/process.h"

namespace poseidon::tools {
namespace {

// As the only worker, whatever launcher is around this program.
void SetEnvironment(int answer, int steps) {
  for (const auto& [name, value] : {std::pair<const char*, std::string>{"POSEIDON_PROFILE", launch::PathOf(answer)},
                                    {"POSEIDON_PROFILE_STEPS", std::to_string(steps)},
                                    {"RANK", "0"},
                                    {"WORLD_SIZE", "1"},
                                    {"LOCAL_RANK", "0"},
                                    {"LOCAL_WORLD_SIZE", "1"}}) {
    setenv(name, value.c_str(), 1);
  }
}

// In the child. Where the command cannot be run, errno goes to `report`.
[[noreturn]] void BecomeCommand(char* const* argv, pid_t parent, int report) {
  launch::EndWithParent(SIGTERM, parent);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvp(argv[0], argv);
  const int error = errno;
  static_cast<void>(!write(report, &error, sizeof error));
  _exit(127);
}

// Its wait status. A terminal's Ctrl-C reaches the command by itself; what another process sends to this one is sent on.
int WaitFor(pid_t command, const sigset_t& signals) {
  int status = 0;
  while (waitpid(command, &status, WNOHANG) == 0) {
    siginfo_t received{};
    const int signal = sigwaitinfo(&signals, &received);
    if (signal > 0 && signal != SIGCHLD && received.si_code <= 0) kill(command, signal);
  }
  return status;
}

std::string TextIn(int file) {
  struct stat known {};
  if (fstat(file, &known) != 0) return "";
  std::string text(static_cast<std::size_t>(known.st_size), '\0');
  std::size_t read = 0;
  while (read < text.size()) {
    const ssize_t n = pread(file, text.data() + read, text.size() - read, static_cast<off_t>(read));
    if (n <= 0) break;
    read += static_cast<std::size_t>(n);
  }
  text.resize(read);
  return text;
}

}  // namespace

Result<profile::ScriptEnd> RunMeasured(const std::vector<std::string>& command, int steps) {
  POSEIDON_ASSIGN_OR_RETURN(const int answer, launch::FileInMemory("poseidon-profile"));
  launch::Pipe report;
  if (!report.Open()) return ResourceExhausted("no pipe for " + command.front() + ": " + ErrnoText(errno));
  SetEnvironment(answer, steps);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, s);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const std::vector<char*> argv = launch::ArgvOf(command);
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child < 0) return ResourceExhausted("no process for " + command.front() + ": " + ErrnoText(errno));
  if (child == 0) BecomeCommand(argv.data(), self, report.write);
  report.CloseWrite();
  int error = 0;
  const bool failed = read(report.read, &error, sizeof error) == static_cast<ssize_t>(sizeof error);
  const int status = WaitFor(child, signals);
  if (failed) return NotFound(command.front() + " cannot be run: " + ErrnoText(error));
  profile::ScriptEnd ended{.exit_code = launch::ExitCodeOf(status), .how = launch::DescribeWaitStatus(status), .answer = TextIn(answer)};
  close(answer);
  return ended;
}

}  // namespace poseidon::tools
