// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_RUN_COMMANDS_H_
#define POSEIDON_TOOLS_RUN_COMMANDS_H_

#include <CLI/CLI.hpp>

// Commands that start, or become, somebody else's program; a build without the trainer has them too. Each adds its flags
// to `app` and sets a callback that throws CLI::RuntimeError with the exit code.
namespace poseidon::tools {

void AddRun(CLI::App& app);
void AddRank(CLI::App& app);            // started by run; reads its task from standard input
void AddPythonCommands(CLI::App& app);  // doctor, demo
void AddLinks(CLI::App& app);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_RUN_COMMANDS_H_
