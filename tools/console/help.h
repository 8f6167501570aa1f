// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_HELP_H_
#define POSEIDON_TOOLS_CONSOLE_HELP_H_

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

// What a command's flags say of themselves: their names, what they take and from where to where, their defaults and their
// meaning. The help, the manual page and the completion of a shell are all made from that.
namespace poseidon::tools {

// Has `app` and all commands that are added to it later print their help so: usage, what the command is for, its arguments and
// flags, examples (its footer, indented), in lines of at most `width` columns.
void FormatHelp(CLI::App& app, std::size_t width);

// "poseidon train --solver FILE [FLAGS]". `name`: of the command with those above it.
std::string UsageOf(const CLI::App& command, const std::string& name);

// The names of a command's flags, with their dashes.
std::vector<std::string> FlagsOf(const CLI::App& command);

// The manual page poseidon(1) of `app` and its commands, for man.
std::string ManualPage(const CLI::App& app, const std::string& version);

// A script for bash, which zsh reads too, that completes commands, their flags, and values that are one of several words.
std::string BashCompletion(const CLI::App& app);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_HELP_H_
