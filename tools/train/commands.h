// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_COMMANDS_H_
#define POSEIDON_TOOLS_TRAIN_COMMANDS_H_

#include <CLI/CLI.hpp>

// The trainer's commands, one file each. Each adds its flags to `app` and sets a callback that throws CLI::RuntimeError
// with the exit code.
namespace poseidon::tools {

void AddTrain(CLI::App& app);
void AddTest(CLI::App& app);
void AddTime(CLI::App& app);
void AddDeviceQuery(CLI::App& app);
void AddConvertMnist(CLI::App& app);
void AddExport(CLI::App& app);
void AddMember(CLI::App& app);  // started by train; reads its task from standard input

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_COMMANDS_H_
