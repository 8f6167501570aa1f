// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_PROCESS_H_
#define POSEIDON_TOOLS_LAUNCH_PROCESS_H_

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "poseidon/base/result.h"
#include "tools/launch/child.h"

namespace poseidon::launch {

// Starts the program `argv[0]`, looked up in PATH, as a child in a process group of its own, and returns its process id once it
// has begun, or after 2 s: it is stopped then, or its disk does not answer. The kernel sends it SIGTERM when the calling thread
// ends. kNotFound when it cannot be run; a child that finds out later exits with code 127. Until its program begins
// a child also holds what this process had open when it was made.
Result<pid_t> StartProgram(const std::vector<std::string>& argv, const Streams& streams);

// A child with a pipe to its standard input and one from its standard output; standard error is
// ours. The child ends when we do: the kernel sends it SIGTERM when we die, and its input ends.
// Thread: one at a time, the one that started it (the death signal is tied to that thread).
class Process {
 public:
  // As StartProgram.
  static Result<Process> Start(const std::vector<std::string>& argv);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  // Closes the pipes; does not wait and does not kill.
  ~Process();

  pid_t pid() const { return pid_; }
  int output() const { return output_; }  // non-blocking
  // Writes a line to the child's input, whole. kUnavailable when the child no longer reads.
  Status WriteLine(const std::string& line);
  void CloseInput();
  // Reads what is there; nullopt at the end of the output.
  std::optional<std::string> ReadSome();
  void Signal(int signal) const;
  // Reaps the child if it has ended; its wait status once, nullopt before and after.
  std::optional<int> TryWait();
  bool ended() const { return ended_; }

 private:
  Process(pid_t pid, int input, int output) : pid_(pid), input_(input), output_(output) {}

  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  bool ended_ = false;
};

// Reads `size` bytes, however long they take to come. False where the other end has closed before.
bool ReadWhole(int fd, char* bytes, std::size_t size);

// The exit code, as shells have it: 128 and the signal's number where one killed the process.
int ExitCodeOf(int wait_status);
// "exited with code 3", "was killed by signal 9 (Killed)".
std::string DescribeWaitStatus(int wait_status);

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_PROCESS_H_
