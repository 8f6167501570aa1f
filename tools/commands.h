// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_COMMANDS_H_
#define POSEIDON_TOOLS_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <exception>

#include "poseidon/base/status.h"

namespace poseidon::tools {

// Adds the subcommands that this build has; trainer_commands.cc lists those of a build with the trainer, core_commands.cc
// those of one without.
void AddCommands(CLI::App& app);

// What a command threw past everybody, as one sentence. A build with the trainer knows what its compute library throws.
Status FailureOf(const std::exception& error);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_COMMANDS_H_
