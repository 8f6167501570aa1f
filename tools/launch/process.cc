// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tools/launch/pipe.h"

namespace poseidon::launch {
namespace {

// The launcher waits this long, and hears nothing meanwhile, for a child that is stopped before its program begins or
// whose program is on a disk that hangs.
constexpr int kBeginWithinMs = 2000;

}  // namespace

Result<pid_t> StartProgram(const std::vector<std::string>& argv, const Streams& streams) {
  Pipe report;
  if (!report.Open()) return ResourceExhausted("no pipe for a child: " + ErrnoText(errno));
  const std::vector<char*> arguments = ArgvOf(argv);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ResourceExhausted("cannot fork: " + ErrnoText(errno));
  if (pid == 0) {
    EndWithParent(SIGTERM, parent);
    Become(arguments.data(), streams, report.write);
  }

  report.CloseWrite();
  pollfd begun = {report.read, POLLIN, 0};  // its end: exec closes it
  // One that has not begun is frozen like one that has: whoever waits for its words finds out.
  if (poll(&begun, 1, kBeginWithinMs) == 0) return pid;
  int error = 0;
  if (read(report.read, &error, sizeof(error)) == sizeof(error)) {
    waitpid(pid, nullptr, 0);
    return NotFound("cannot run " + argv[0] + ": " + ErrnoText(error));
  }
  return pid;
}

Result<Process> Process::Start(const std::vector<std::string>& argv) {
  Pipe in, out;
  if (!in.Open() || !out.Open()) return ResourceExhausted("no pipe for a child: " + ErrnoText(errno));
  POSEIDON_ASSIGN_OR_RETURN(const pid_t pid, StartProgram(argv, {.input = in.read, .output = out.write}));
  fcntl(out.read, F_SETFL, O_NONBLOCK);
  return Process(pid, std::exchange(in.write, -1), std::exchange(out.read, -1));
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::exchange(other.input_, -1)),
      output_(std::exchange(other.output_, -1)),
      ended_(other.ended_) {}

Process::~Process() {
  CloseInput();
  if (output_ >= 0) close(output_);
}

Status Process::WriteLine(const std::string& line) {
  const std::string text = line + "\n";
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(input_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Unavailable("a child does not read: " + ErrnoText(errno));
    done += static_cast<std::size_t>(n);
  }
  return OkStatus();
}

void Process::CloseInput() {
  if (input_ >= 0) close(std::exchange(input_, -1));
}

std::optional<std::string> Process::ReadSome() {
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t n = read(output_, buffer.data(), buffer.size());
    if (n > 0) return std::string(buffer.data(), static_cast<std::size_t>(n));
    if (n == 0) return std::nullopt;
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return std::string();
    return std::nullopt;
  }
}

void Process::Signal(int signal) const {
  if (!ended_ && pid_ > 0) kill(pid_, signal);
}

std::optional<int> Process::TryWait() {
  if (ended_ || pid_ <= 0) return std::nullopt;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  ended_ = true;
  return status;
}

bool ReadWhole(int fd, char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t got = read(fd, bytes, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

int ExitCodeOf(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string DescribeWaitStatus(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return "was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  }
  return "exited with code " + std::to_string(WEXITSTATUS(wait_status));
}

}  // namespace poseidon::launch
