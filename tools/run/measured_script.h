// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_RUN_MEASURED_SCRIPT_H_
#define POSEIDON_TOOLS_RUN_MEASURED_SCRIPT_H_

#include <string>
#include <vector>

#include "poseidon/base/result.h"
#include "tools/profile/profile_command.h"

namespace poseidon::tools {

// Runs `command` as the one worker of a job, on this terminal, until it ends. The Python package finds in its environment that
// its first distributed model is to be measured (frontends/python/poseidon/profiling.py), and where the answer goes: a file
// without a name, which is gone when this process is. Blocks SIGINT, SIGTERM and SIGHUP from here on, which are the command's.
Result<profile::ScriptEnd> RunMeasured(const std::vector<std::string>& command, int steps);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_RUN_MEASURED_SCRIPT_H_
