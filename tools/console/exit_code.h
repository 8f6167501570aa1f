// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_EXIT_CODE_H_
#define POSEIDON_TOOLS_CONSOLE_EXIT_CODE_H_

// The exit codes of `poseidon`, and of the members of a job.
namespace poseidon::tools {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;      // anything else with a sentence
inline constexpr int kExitUsage = 2;       // the command line is wrong: a flag, its value, or a file that it names
inline constexpr int kExitMemberLost = 3;  // a member of the job died, froze or was cut off
inline constexpr int kExitNotFinite = 4;   // the loss became NaN or infinite (--on-nan stop)

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_EXIT_CODE_H_
