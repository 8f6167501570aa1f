// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_COMMANDS_H_
#define POSEIDON_TOOLS_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "poseidon/base/status.h"

// The subcommands of `poseidon`, one file each. Adding one: a file, a declaration, a line in trainer_commands.cc, and one
// in core_commands.cc, which is linked instead where there is no trainer.
// Each adds its flags to `app` and sets a callback that throws CLI::RuntimeError with the exit code.
namespace poseidon::tools {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;      // a user's mistake, or anything else with a sentence
inline constexpr int kExitMemberLost = 3;  // a member of the job died, froze or was cut off
inline constexpr int kExitNotFinite = 4;   // the loss became NaN or infinite (--on-nan stop)

// Adds all that this build has.
void AddCommands(CLI::App& app);

void AddTrain(CLI::App& app);
void AddRun(CLI::App& app);
void AddPythonCommands(CLI::App& app);  // doctor, demo
void AddTest(CLI::App& app);
void AddTime(CLI::App& app);
void AddPlan(CLI::App& app);
void AddProfile(CLI::App& app);
void AddDeviceQuery(CLI::App& app);
void AddConvertMnist(CLI::App& app);
// Commands that launchers start; they read their task from standard input.
void AddMember(CLI::App& app);  // by train
void AddRank(CLI::App& app);    // by run

// Whether a job failed because of a member: one that it names, or, where nobody can know which, one of
// those that no longer hear each other.
bool IsMemberLost(const Status& failure);

// Prints "poseidon: SENTENCE" on standard error and throws the exit code.
[[noreturn]] void Fail(const std::string& sentence, int code = kExitFailed);

// For a process that cannot go on, from any thread: writes the sentence straight to standard error, in
// a member to the launcher. Does not allocate.
void SayLastWords(std::string_view sentence);
// From now on SayLastWords writes an event for the launcher, in the name of this member.
void TellLauncherLastWords(const std::string& name);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_COMMANDS_H_
