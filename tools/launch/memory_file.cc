// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/memory_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace poseidon::launch {

Result<int> FileInMemory(const std::string& name) {
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (fd < 0 || fchmod(fd, S_IRUSR | S_IWUSR) != 0) {
    return ResourceExhausted("no memory for the file " + name + ": " + ErrnoText(errno));
  }
  return fd;
}

std::string PathOf(int fd) { return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd); }

}  // namespace poseidon::launch
