// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/kept_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

#include "tools/launch/child.h"
#include "tools/launch/descendants.h"
#include "tools/launch/pipe.h"

namespace poseidon::launch {
namespace {

// The ends of the pipes that the keeper and the command use.
struct Ends {
  int output = -1;
  int errors = -1;
  int orders = -1;
  int status = -1;
  int report = -1;  // why the command cannot be run
};

// The command has the signals' own effects, whatever this process does with them, and reads nothing.
[[noreturn]] void BecomeCommand(char* const* argv, pid_t keeper, const Ends& ends) {
  EndWithParent(SIGKILL, keeper);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) signal(s, SIG_DFL);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  Become(argv, {.input = nothing, .output = ends.output, .errors = ends.errors}, ends.report);
}

// Reads which signals the command shall get. False once the other side is gone.
bool Obey(int orders, pid_t command) {
  unsigned char number = 0;
  const ssize_t n = read(orders, &number, 1);
  if (n == 1) kill(-command, number);
  return n > 0 || (n < 0 && errno == EINTR);
}

// Stays until the command has ended or the other side is gone, and ends what is left.
[[noreturn]] void Keep(char* const* argv, pid_t parent, const Ends& ends) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_PDEATHSIG, SIGCHLD);  // the end of the orders says the same; this one cannot be held open by others
  setpgid(0, 0);
  sigset_t mask;
  sigfillset(&mask);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  const int signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
  const pid_t self = getpid();
  const pid_t command = fork();
  if (command == 0) BecomeCommand(argv, self, ends);
  const int error = errno;
  if (command < 0) static_cast<void>(!write(ends.report, &error, sizeof error));
  for (const int end : {ends.output, ends.errors, ends.report}) close(end);
  int status = 0;
  bool ended = command < 0;
  while (!ended && getppid() == parent) {
    pollfd polled[] = {{signals, POLLIN, 0}, {ends.orders, POLLIN, 0}};
    poll(polled, 2, -1);
    signalfd_siginfo info;
    while (read(signals, &info, sizeof info) > 0) {
    }
    if (polled[1].revents != 0 && !Obey(ends.orders, command)) break;
    int one = 0;
    for (pid_t pid; (pid = waitpid(-1, &one, WNOHANG)) > 0;) {
      if (pid != command) continue;
      status = one;
      ended = true;
    }
  }
  KillDescendants();
  if (ended) static_cast<void>(!write(ends.status, &status, sizeof status));
  _exit(0);
}

// A terminal of its own, that of no session: signals of keys come from ours. False with errno.
bool OpenTerminal(Pipe* ends, int columns) {
  ends->read = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  std::array<char, 64> name{};
  if (ends->read < 0 || grantpt(ends->read) != 0 || unlockpt(ends->read) != 0 ||
      ptsname_r(ends->read, name.data(), name.size()) != 0) {
    return false;
  }
  ends->write = open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  termios modes{};
  if (ends->write < 0 || tcgetattr(ends->write, &modes) != 0) return false;
  cfmakeraw(&modes);
  const winsize size{.ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
  return tcsetattr(ends->write, TCSANOW, &modes) == 0 && ioctl(ends->write, TIOCSWINSZ, &size) == 0;
}

}  // namespace

Result<KeptCommand> KeptCommand::Start(const std::vector<std::string>& argv,
                                       const std::map<std::string, std::string>& set, const Screen& screen) {
  Pipe output, errors, orders, status, report;
  for (Pipe* const pipe : {&output, &errors, &orders, &status, &report}) {
    const bool shown = (pipe == &output && screen.output) || (pipe == &errors && screen.errors);
    if (!(shown ? OpenTerminal(pipe, screen.columns) : pipe->Open())) {
      return ResourceExhausted(std::string("no ") + (shown ? "terminal" : "pipe") + " for a child: " + ErrnoText(errno));
    }
  }
  const std::vector<char*> arguments = ArgvOf(argv);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (const auto& [name, value] : set) setenv(name.c_str(), value.c_str(), 1);
  const pid_t parent = getpid();
  const pid_t keeper = fork();
  if (keeper < 0) return ResourceExhausted("cannot fork: " + ErrnoText(errno));
  if (keeper == 0) {
    // The end of its orders is seen only if it has no copy of the other end.
    orders.CloseWrite();
    Keep(arguments.data(), parent, {output.write, errors.write, orders.read, status.write, report.write});
  }
  for (Pipe* const pipe : {&output, &errors, &status, &report}) pipe->CloseWrite();
  int error = 0;
  if (read(report.read, &error, sizeof error) == sizeof error) {
    waitpid(keeper, nullptr, 0);
    return NotFound("cannot run '" + argv[0] + "': " + ErrnoText(error));
  }
  fcntl(output.read, F_SETFL, O_NONBLOCK);
  fcntl(errors.read, F_SETFL, O_NONBLOCK);
  return KeptCommand(keeper, std::exchange(output.read, -1), std::exchange(errors.read, -1),
                     std::exchange(orders.write, -1), std::exchange(status.read, -1));
}

KeptCommand::KeptCommand(KeptCommand&& other) noexcept
    : keeper_(std::exchange(other.keeper_, -1)),
      output_(std::exchange(other.output_, -1)),
      errors_(std::exchange(other.errors_, -1)),
      orders_(std::exchange(other.orders_, -1)),
      status_(std::exchange(other.status_, -1)) {}

KeptCommand::~KeptCommand() {
  if (keeper_ > 0) End();
  for (const int fd : {output_, errors_, status_}) {
    if (fd >= 0) close(fd);
  }
}

void KeptCommand::Signal(int signal) const {
  const auto number = static_cast<unsigned char>(signal);
  if (orders_ >= 0) static_cast<void>(!write(orders_, &number, 1));
}

std::optional<int> KeptCommand::TryWait() {
  if (keeper_ <= 0) return std::nullopt;
  pollfd polled = {status_, POLLIN, 0};
  if (poll(&polled, 1, 0) <= 0) return std::nullopt;
  int status = 0;
  if (read(status_, &status, sizeof status) != sizeof status) status = SIGKILL;
  End();
  return status;
}

void KeptCommand::End() {
  if (keeper_ <= 0) return;
  keeper_ = -1;
  if (orders_ >= 0) close(std::exchange(orders_, -1));
  KillDescendants();
}

}  // namespace poseidon::launch
