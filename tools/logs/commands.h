// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LOGS_COMMANDS_H_
#define POSEIDON_TOOLS_LOGS_COMMANDS_H_

#include <CLI/CLI.hpp>

namespace poseidon::logs {

// Adds what Caffe has for logs in tools/extra: parse_log, extract_seconds and plot_training_log. Their callbacks throw
// CLI::RuntimeError with the exit code.
void AddLogCommands(CLI::App& app);

}  // namespace poseidon::logs

#endif  // POSEIDON_TOOLS_LOGS_COMMANDS_H_
