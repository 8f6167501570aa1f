// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/processor_time.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace poseidon::session {
namespace {

namespace fs = std::filesystem;

// Adds the children of a process: the kernel lists them by the thread that started them.
void AddChildrenOf(const fs::path& process, std::vector<pid_t>* children) {
  std::error_code error;
  for (fs::directory_iterator thread(process / "task", error), end; !error && thread != end; thread.increment(error)) {
    std::ifstream list(thread->path() / "children");
    for (pid_t child = 0; list >> child;) children->push_back(child);
  }
}

// Of the process and of those that it has waited for; nothing where it is gone.
Duration UsedBy(const fs::path& process) {
  std::ifstream file(process / "stat");
  std::string text;
  std::getline(file, text);
  const std::size_t behind_name = text.rfind(')');  // a name may hold parentheses
  unsigned long own_user = 0, own_system = 0;
  long others_user = 0, others_system = 0;
  if (behind_name == std::string::npos ||
      std::sscanf(text.c_str() + behind_name, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &own_user,
                  &own_system, &others_user, &others_system) != 4) {
    return Duration{0};
  }
  const double ticks = static_cast<double>(own_user + own_system) + static_cast<double>(others_user + others_system);
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(ticks / static_cast<double>(::sysconf(_SC_CLK_TCK))));
}

Duration Of(const timeval& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

}  // namespace

Duration ProcessorTime() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

Duration ProcessorTimeOfChildren() {
  rusage waited_for{};
  ::getrusage(RUSAGE_CHILDREN, &waited_for);
  Duration used = Of(waited_for.ru_utime) + Of(waited_for.ru_stime);
  const fs::path processes = "/proc";
  std::vector<pid_t> left;
  AddChildrenOf(processes / "self", &left);
  while (!left.empty()) {
    const fs::path process = processes / std::to_string(left.back());
    left.pop_back();
    used = used + UsedBy(process);
    AddChildrenOf(process, &left);
  }
  return used;
}

}  // namespace poseidon::session
