// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_PIPE_H_
#define POSEIDON_TOOLS_LAUNCH_PIPE_H_

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace poseidon::launch {

// Both ends of a pipe, closed by exec and by the destructor; whoever keeps an end takes it out.
struct Pipe {
  int read = -1;
  int write = -1;

  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    if (read >= 0) close(read);
    CloseWrite();
  }
  // False with errno.
  bool Open() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
  void CloseWrite() {
    if (write >= 0) close(std::exchange(write, -1));
  }
};

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_PIPE_H_
