// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_CHILD_H_
#define POSEIDON_TOOLS_LAUNCH_CHILD_H_

#include <sys/types.h>

#include <string>
#include <vector>

// From fork to exec. What a child calls is async-signal-safe.
namespace poseidon::launch {

// Returns the arguments as exec takes them. Lifetime: that of `words`.
std::vector<char*> ArgvOf(const std::vector<std::string>& words);

// In the child: the kernel sends it `signal` when the parent dies. Ends it where that has happened already.
void EndWithParent(int signal, pid_t parent);

// Descriptors that become a program's standard streams.
struct Streams {
  int input = 0;
  int output = 1;
  int errors = 2;
};
// In the child: becomes the program `argv[0]`, looked up in PATH, in a process group of its own (a terminal's Ctrl-C is
// the launcher's to deal out) and with no signal blocked. Where it cannot be run, errno goes to `report`.
[[noreturn]] void Become(char* const* argv, const Streams& streams, int report);

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_CHILD_H_
