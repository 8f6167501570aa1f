// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_DESCENDANTS_H_
#define POSEIDON_TOOLS_LAUNCH_DESCENDANTS_H_

#include <sys/types.h>

#include <optional>
#include <vector>

namespace poseidon::launch {

// The state of a process in /proc at one moment.
struct ProcessState {
  char letter = 'Z';  // 'T' and 't': stopped; 'Z' and 'X': ended
  pid_t parent = 0;
};
// nullopt for one that is gone.
std::optional<ProcessState> StateOf(pid_t pid);

// The living processes that `ancestor` started, and those that they started, as /proc shows them now.
std::vector<pid_t> DescendantsOf(pid_t ancestor);

// Kills all descendants of this process, looks again for what they started meanwhile, and reaps those that are its
// children. Where the process is a subreaper (PR_SET_CHILD_SUBREAPER) none escapes by losing its parent.
// Blocks until none is left, or for 2 s where the kernel cannot end one (a disk that hangs).
void KillDescendants();

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_DESCENDANTS_H_
