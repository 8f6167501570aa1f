// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_ARGUMENTS_H_
#define POSEIDON_TOOLS_CONSOLE_ARGUMENTS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace poseidon::tools {

// Returns the arguments of a command line as `app` reads them, subcommand first. Where the program was called by the name of one
// of Caffe's (programs.h) that is the subcommand. In names of subcommands and flags '-' and '_' may stand for each other. Caffe's command
// lines may have one dash for two, flags before the subcommand, and the flags of its logging library, which have no
// effect here and are left out. Where one of these has a wrong value it ends the program with a sentence. The arguments of `run` stay as
// they are, and so do those of `compare` unless TrainsANet. Those of `profile` stay so from a script on, before which "--" is put.
std::vector<std::string> ArgumentsOf(const CLI::App& app, int argc, char** argv);

// Whether these words of compare name a solver, before a command: then it trains a net, and they are flags of train. Else they are those
// of run, and a command with arguments of its own.
bool TrainsANet(const CLI::App& app, const std::vector<std::string>& words);

// Returns a sentence about the first of these arguments that is no command, no flag of its command, or a flag without its
// value, with the nearest name; empty where there is none. The library would first say what else is missing.
std::string UnknownIn(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_ARGUMENTS_H_
