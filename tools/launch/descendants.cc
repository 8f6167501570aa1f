// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/descendants.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

namespace poseidon::launch {
namespace {

constexpr std::chrono::seconds kUntilGivenUp{2};

}  // namespace

std::optional<ProcessState> StateOf(pid_t pid) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return std::nullopt;
  char text[512];
  const std::size_t length = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[length] = '\0';
  const char* const behind_name = std::strrchr(text, ')');  // a name may hold parentheses
  ProcessState state;
  if (behind_name == nullptr || std::sscanf(behind_name, ") %c %d", &state.letter, &state.parent) != 2) {
    return std::nullopt;
  }
  return state;
}

std::vector<pid_t> DescendantsOf(pid_t ancestor) {
  std::multimap<pid_t, pid_t> children;
  DIR* const processes = opendir("/proc");
  if (processes == nullptr) return {};
  while (const dirent* const entry = readdir(processes)) {
    const pid_t pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    const std::optional<ProcessState> state = pid > 0 ? StateOf(pid) : std::nullopt;
    if (state && state->letter != 'Z' && state->letter != 'X') children.emplace(state->parent, pid);
  }
  closedir(processes);
  std::vector<pid_t> found = {ancestor};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

void KillDescendants() {
  const auto until = std::chrono::steady_clock::now() + kUntilGivenUp;
  for (;;) {
    const std::vector<pid_t> left = DescendantsOf(getpid());
    for (const pid_t pid : left) kill(pid, SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (left.empty() || std::chrono::steady_clock::now() > until) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace poseidon::launch
