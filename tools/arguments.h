// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_ARGUMENTS_H_
#define POSEIDON_TOOLS_ARGUMENTS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace poseidon::tools {

// The words of a command line as `app` reads them, subcommand first. Caffe's command lines may have
// one dash for two, flags before the subcommand, and the flags of its logging library, which have no
// effect here and are left out; but the words of `run` stay as they are. Fails with a sentence where one of those has a
// wrong value.
std::vector<std::string> ArgumentsOf(const CLI::App& app, int argc, char** argv);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_ARGUMENTS_H_
