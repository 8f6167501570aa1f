// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_LAST_WORDS_H_
#define POSEIDON_TOOLS_LAUNCH_LAST_WORDS_H_

#include <string>
#include <string_view>

namespace poseidon::launch {

// For a process that cannot go on, from any thread: writes the sentence straight to standard error, in
// a member to the launcher. Does not allocate.
void SayLastWords(std::string_view sentence);
// From now on SayLastWords writes an event for the launcher, in the name of this member.
void TellLauncherLastWords(const std::string& name);

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_LAST_WORDS_H_
