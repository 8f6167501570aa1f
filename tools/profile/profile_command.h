// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_PROFILE_PROFILE_COMMAND_H_
#define POSEIDON_TOOLS_PROFILE_PROFILE_COMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "poseidon/base/result.h"
#include "tools/profile/plan_command.h"

namespace poseidon::profile {

// How a script has ended that was asked to measure the first model that it distributes.
struct ScriptEnd {
  int exit_code = 0;
  std::string how;     // for people: "exited with code 3"
  std::string answer;  // a profile, or {"failure": why there is none}; empty where no model was distributed
};
// Runs a command until it ends, so that it measures so many steps. A failure says why it could not be run.
using RunScript = std::function<Result<ScriptEnd>(const std::vector<std::string>& command, int steps)>;

// Adds `poseidon profile`, of a script of Python, which `script` runs, and of a net of Caffe's, which `net` measures: its
// flags, and a callback that throws CLI::RuntimeError with the exit code.
void AddProfile(CLI::App& app, Measure net, RunScript script);

}  // namespace poseidon::profile

#endif  // POSEIDON_TOOLS_PROFILE_PROFILE_COMMAND_H_
