// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_SHARED_FLAGS_H_
#define POSEIDON_TOOLS_CONSOLE_SHARED_FLAGS_H_

#include <CLI/CLI.hpp>
#include <string>

// Flags that several commands have.
namespace poseidon::tools {

// --level and --stage, the state by which a net's layers are chosen.
void AddStateFlags(CLI::App& command, int& level, std::string& stages);
// --threads; 0 stays where it is not given.
void AddThreadsFlag(CLI::App& command, int& threads);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_SHARED_FLAGS_H_
